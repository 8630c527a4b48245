//! Writes a store directory as a broker would have left it, of any geometry, for the tests of reading.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use mqstore::format::{
    Check, CqUnit, DelayLevels, DispatchRequest, IndexGeometry, IndexHeader, Message, Record, encode_blank, encode_properties,
    fits, index_key_hash, read_record, segment_name,
};

pub struct StoreWriter {
    root: PathBuf,
    segment_size: usize,
    cq_file_size: usize,
    geometry: IndexGeometry,
    log: Vec<u8>,
    queues: BTreeMap<(String, i32), Vec<(i64, CqUnit)>>,
    index: Vec<(IndexHeader, Vec<u8>)>,
    pub last_store_time: i64,
}

impl StoreWriter {
    pub fn new(root: &Path, segment_size: usize, cq_entries: usize, slots: u32, items: u32) -> Self {
        Self {
            root: root.to_owned(),
            segment_size,
            cq_file_size: cq_entries * 20,
            geometry: IndexGeometry { slots, items },
            log: Vec::new(),
            queues: BTreeMap::new(),
            index: Vec::new(),
            last_store_time: 1_700_000_000_000,
        }
    }

    pub fn small(root: &Path) -> Self {
        Self::new(root, 16384, 50, 100, 400)
    }

    /// Appends a half or rolled-back message, which has no queue entry. Returns the physical offset.
    pub fn append_without_entry(&mut self, message: Message) -> i64 {
        let queue = (message.topic.clone().into(), message.queue_id);
        let offset = self.append(message);
        self.queues.get_mut(&queue).unwrap().pop();
        offset
    }

    /// Appends and dispatches; the message gets the next queue offset unless it names one. Returns the physical offset.
    pub fn append(&mut self, mut message: Message) -> i64 {
        if message.store_time == 0 {
            self.last_store_time += 10;
            message.store_time = self.last_store_time;
        }
        let queue = self
            .queues
            .entry((message.topic.clone().into(), message.queue_id))
            .or_default();
        message.queue_offset = message.queue_offset.max(queue.last().map_or(0, |(offset, _)| offset + 1));
        self.wait_for_blocked(message.encoded_len());
        let physical_offset = self.log.len() as i64;
        message.physical_offset = physical_offset;
        let bytes = message.encode().unwrap();
        let Record::Message(view) = read_record(&bytes, Check::Whole) else {
            panic!("not a record")
        };
        let unit = CqUnit {
            physical_offset,
            size: view.size() as i32,
            tags_code: DispatchRequest::of(&view).tags_code(&DelayLevels::default()),
        };
        self.queues
            .get_mut(&(message.topic.clone().into(), message.queue_id))
            .unwrap()
            .push((message.queue_offset, unit));
        for key in DispatchRequest::of(&view).index_keys(false) {
            self.put_key(index_key_hash(&message.topic, &key), physical_offset, message.store_time);
        }
        self.log.extend(&bytes);
        physical_offset
    }

    /// Forgets the queues of a topic, as a broker does that deletes it: its messages stay in the log.
    pub fn delete_topic(&mut self, topic: &str) {
        self.queues.retain(|(name, _), _| name != topic);
    }

    /// Returns the end of the log.
    pub fn end(&self) -> i64 {
        self.log.len() as i64
    }

    /// Continues in the next segment if this one has no room for this many bytes.
    pub fn wait_for_blocked(&mut self, len: usize) {
        let used = self.log.len() % self.segment_size;
        let remaining = self.segment_size - used;
        if !fits(len as u64, remaining as u64) {
            assert!(len + 8 <= self.segment_size, "{len} bytes do not fit into a segment");
            self.log.extend(encode_blank(remaining as u32));
            self.log.resize(self.log.len() + remaining - 8, 0);
        }
    }

    pub fn put(&mut self, topic: &str, queue_id: i32, body: &[u8], properties: &[(&str, &str)]) -> i64 {
        let properties = encode_properties(properties.iter().copied(), true).unwrap();
        self.append(Message {
            topic: topic.into(),
            queue_id,
            body: body.to_vec().into(),
            properties: properties.into(),
            ..Message::default()
        })
    }

    /// Without room for items there is no index.
    fn put_key(&mut self, key_hash: i32, physical_offset: i64, store_time: i64) {
        if self.geometry.items == 0 {
            return;
        }
        if self
            .index
            .last()
            .is_none_or(|(header, _)| header.index_count >= self.geometry.items as i32)
        {
            let header = IndexHeader::rolled_from(self.index.last().map(|(header, _)| header));
            self.index.push((header, vec![0; self.geometry.file_len() as usize]));
        }
        let geometry = self.geometry;
        let (header, image) = self.index.last_mut().unwrap();
        let slot = geometry.slot_position(key_hash as u32 % geometry.slots) as usize;
        let previous = i32::from_be_bytes(image[slot..slot + 4].try_into().unwrap());
        let number = header.index_count;
        let item = header
            .admit(geometry, previous, key_hash, physical_offset, store_time)
            .unwrap();
        let at = geometry.item_position(number as u32) as usize;
        image[at..at + 20].copy_from_slice(&item.encode());
        image[slot..slot + 4].copy_from_slice(&number.to_be_bytes());
        image[..40].copy_from_slice(&header.encode());
    }

    /// Writes everything to the files. A store that is not clean keeps its abort file.
    pub fn finish(&self, clean: bool) {
        for dir in ["commitlog", "consumequeue", "index"] {
            fs::create_dir_all(self.root.join(dir)).unwrap();
        }
        for (number, segment) in self.log.chunks(self.segment_size).enumerate() {
            let name = segment_name((number * self.segment_size) as u64);
            write_padded(&self.root.join("commitlog").join(name), segment, self.segment_size);
        }
        for ((topic, queue_id), units) in &self.queues {
            self.write_queue(topic, *queue_id, units);
        }
        for (number, (_, image)) in self.index.iter().enumerate() {
            fs::write(
                self.root.join("index").join(format!("{}", 20_260_101_000_000_000 + number)),
                image,
            )
            .unwrap();
        }
        if !clean {
            fs::write(self.root.join("abort"), "").unwrap();
        }
    }

    fn write_queue(&self, topic: &str, queue_id: i32, units: &[(i64, CqUnit)]) {
        let dir = self.root.join("consumequeue").join(topic).join(queue_id.to_string());
        fs::create_dir_all(&dir).unwrap();
        let mut files: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        let first = units.first().map_or(0, |(offset, _)| *offset as usize * 20);
        for (offset, unit) in units {
            let at = *offset as usize * 20;
            let start = at - at % self.cq_file_size;
            let file = files.entry(start).or_insert_with(|| {
                // A queue that starts inside a file begins with PRE_BLANK entries.
                CqUnit::PRE_BLANK.encode().repeat(first.saturating_sub(start) / 20)
            });
            file.resize(at - start, 0);
            file.extend(unit.encode());
        }
        for (start, bytes) in files {
            write_padded(&dir.join(segment_name(start as u64)), &bytes, self.cq_file_size);
        }
    }
}

fn write_padded(path: &Path, bytes: &[u8], len: usize) {
    let mut bytes = bytes.to_vec();
    bytes.resize(len, 0);
    fs::write(path, bytes).unwrap();
}
