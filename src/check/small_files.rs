//! Names of files, the checkpoint, and the settings.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use crate::check::context::{Context, Writer};
use crate::check::finding_id::{FindingId, Severity};
use crate::check::findings::{Affected, Finding};
use crate::error::{Error, Result};
use crate::format::{
    ABORT_FILE, CHECKPOINT_FIELDS_SIZE, CHECKPOINT_FILE, CONFIG_DIR, Checkpoint, INDEX_DIR, RECOVERY_NOTE_FILE, TOPICS_FILE,
    UNFINISHED_PREFIX, check_settings, is_light_queue, parse_index_name,
};
use crate::log::{ConsumeQueueStore, KeptElsewhere, StorePart, kept_elsewhere};
use crate::read::MessageReader;
use crate::recovery::load_own_from;
use crate::storage::{DirEntry, EntryKind, Env, read_file};
use crate::store::misplaced_entries;

/// The remedy for a link that leads nowhere: a disk may not be mounted.
const PUT_BACK: &str = "put back what belongs there, or move it out of the store";
/// Larger than any file of settings that is looked at.
const MAX_SETTINGS: usize = 64 << 20;

/// Looks at the names in the directories of the store.
pub(super) fn look_at_names(env: &dyn Env, context: &mut Context<'_>) -> Result<()> {
    let root = context.root;
    if context.writer != Writer::Closed {
        let who = if context.writer == Writer::Live {
            "a writer has the store open"
        } else {
            "the last writer crashed"
        };
        context.add(Finding::new(FindingId::StoreNotClosed, &root.join(ABORT_FILE), 0, who));
    }
    for dir in [root.to_owned(), root.join(CONFIG_DIR)] {
        for entry in files(env, &dir)? {
            if entry.name.to_string_lossy().starts_with(UNFINISHED_PREFIX) && context.writer != Writer::Live {
                let what = format!("an unfinished file of {} bytes", entry.len);
                context.add(Finding::new(FindingId::StoreUnfinishedFile, &dir.join(&entry.name), 0, what));
            }
        }
    }
    for path in context.log.foreign_files() {
        context.add(Finding::new(FindingId::LogForeignFile, &path, 0, "this is not a segment"));
    }
    let index = root.join(INDEX_DIR);
    for entry in files(env, &index)? {
        if entry.name.to_str().and_then(parse_index_name).is_none() {
            let path = index.join(&entry.name);
            context.add(Finding::new(
                FindingId::IndexForeignFile,
                &path,
                0,
                "this is not an index file",
            ));
        }
    }
    for (path, len) in context.log.cut_short() {
        let what = format!("the segment has {len} bytes, and later segments are there");
        context.add(Finding::new(FindingId::LogCutShort, path, *len, what));
    }
    if context.writer != Writer::Live {
        for path in context.log.empty_files() {
            context.add(Finding::new(FindingId::LogEmptyFile, path, 0, "this segment has no byte"));
        }
        if let Err(Error::Corrupt {
            path, offset, reason, ..
        }) = context.log.expect_whole()
        {
            context.add(Finding::new(FindingId::LogCutShort, &path, offset, reason));
        }
    }
    look_at_beginning(env, context)
}

/// Reports segments before the log that nobody has removed by right. A broker that removes some replaces the claim in the `lock` file. Of a
/// first segment that is empty another finding says so.
fn look_at_beginning(env: &dyn Env, context: &mut Context<'_>) -> Result<()> {
    if context.findings().has_error(FindingId::LogCutShort) {
        return Ok(());
    }
    let claim = load_own_from(env, context.root)?;
    if let Some(missing) = claim.and_then(|claim| context.log.untrimmed_before(env, claim)) {
        let (path, position) = context.log.path_of(missing.start);
        let what = format!(
            "no segment holds the physical offsets from {} to {}",
            missing.start, missing.end
        );
        context.add(Finding::new(FindingId::LogBeginsLate, &path, position, what));
    }
    Ok(())
}

/// Looks for entries of another type than a writer needs.
pub(super) fn look_at_types(env: &dyn Env, queues: &ConsumeQueueStore, context: &mut Context<'_>) -> Result<()> {
    for misplaced in misplaced_entries(env, context.root)? {
        let what = format!("it {}", misplaced.what);
        let finding = Finding::new(FindingId::StoreWrongType, &misplaced.path, 0, what);
        context.add(if misplaced.is_link {
            finding.by_hand(PUT_BACK)
        } else {
            finding
        });
    }
    for path in queues.misplaced() {
        let what = "it is named like a topic or a queue but is not a directory";
        context.add(Finding::new(FindingId::StoreWrongType, path, 0, what));
    }
    Ok(())
}

/// Notes which parts of the store are in files of another format.
pub(super) fn note_kept_elsewhere(env: &dyn Env, queues: &ConsumeQueueStore, context: &mut Context<'_>) -> Result<()> {
    let kept = kept_elsewhere(env, context.root, queues)?;
    context.kept_elsewhere = kept.iter().map(|kept| kept.part).collect();
    for KeptElsewhere { part, path, topic, what } in kept {
        let id = if part == StorePart::Queues {
            FindingId::QueueNotRead
        } else {
            FindingId::StoreNotRead
        };
        let affected = topic.map(of_topic).unwrap_or_default();
        context.add(Finding::new(id, &path, 0, what).of(affected));
    }
    Ok(())
}

/// Looks at the settings of the broker.
pub(super) fn look_at_settings(
    env: &dyn Env,
    reader: &MessageReader,
    queues: &ConsumeQueueStore,
    context: &mut Context<'_>,
) -> Result<()> {
    let dir = context.root.join(CONFIG_DIR);
    for entry in files(env, &dir)? {
        let name = entry.name.to_string_lossy();
        // A file that replaces another one may not be whole yet. A note of ours that is not whole counts as none.
        if !name.ends_with(".json") || name.starts_with(UNFINISHED_PREFIX) || entry.name == RECOVERY_NOTE_FILE {
            continue;
        }
        let path = dir.join(&entry.name);
        // A broker replaces such a file while it runs: it may be longer than it was listed.
        let Some(bytes) = read_file(env, &path, MAX_SETTINGS)? else {
            continue;
        };
        if let Err(malformed) = check_settings(&bytes) {
            context.add(Finding::new(
                FindingId::ConfigUnreadable,
                &path,
                malformed.at as u64,
                malformed.reason,
            ));
        }
    }
    if context.kept_elsewhere.contains(&StorePart::TopicConfigs) {
        // The file may be out of date.
        return Ok(());
    }
    let configs = match reader.topic_configs() {
        Ok(configs) => configs.content,
        Err(Error::NotFound { .. } | Error::Corrupt { .. } | Error::Unsupported { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    // A writer of ours adds the topics of its messages when it is closed, so that a topic without an entry may be new.
    if context.writer != Writer::Closed && configs.iter().any(|config| config.grows) {
        return Ok(());
    }
    let known: BTreeSet<String> = configs.into_iter().map(|config| config.topic).collect();
    // A broker keeps no settings of light queues.
    let has_none = |topic: &String| !known.contains(topic) && !is_light_queue(topic);
    for topic in queues.topics().into_iter().filter(has_none) {
        let what = format!("topic {topic:?} has queues, and no settings");
        let path = dir.join(TOPICS_FILE.name);
        context.add(Finding::new(FindingId::ConfigTopicMissing, &path, 0, what).of(of_topic(topic)));
    }
    context.known_topics = Some(known);
    Ok(())
}

/// Compares the stamps with the store time of the last message, if there is one.
pub(super) fn look_at_checkpoint(env: &dyn Env, last_store_time: Option<i64>, context: &mut Context<'_>) -> Result<()> {
    let path = context.root.join(CHECKPOINT_FILE);
    let fields = read_file(env, &path, CHECKPOINT_FIELDS_SIZE)?.unwrap_or_default();
    if fields.len() < CHECKPOINT_FIELDS_SIZE {
        let what = format!("it has {} of {CHECKPOINT_FIELDS_SIZE} bytes", fields.len());
        context.add(Finding::new(FindingId::CheckpointMissing, &path, 0, what));
        return Ok(());
    }
    let checkpoint = Checkpoint::decode(&fields);
    let stamps = [
        ("physicMsgTimestamp", checkpoint.physic_msg_timestamp),
        ("logicsMsgTimestamp", checkpoint.logics_msg_timestamp),
        ("indexMsgTimestamp", checkpoint.index_msg_timestamp),
    ];
    let now = env.now_ms().max(last_store_time.unwrap_or(0));
    for (name, stamp) in stamps.iter().filter(|(_, stamp)| *stamp > now) {
        context.add(Finding::new(
            FindingId::CheckpointInFuture,
            &path,
            0,
            format!("{name} is {stamp}, now it is {now}"),
        ));
    }
    // After a crash a broker's stamp may be later than what reached the disk. A live writer has stamped more since.
    let is_exact = context.writer == Writer::Closed || (context.writer == Writer::Crashed && checkpoint.is_ours());
    let Some(last) = last_store_time.filter(|_| is_exact && !context.has_damage()) else {
        return Ok(());
    };
    for (name, stamp) in stamps.iter().filter(|(_, stamp)| (last + 1..=now).contains(stamp)) {
        let what = format!("{name} is {stamp}, and the last message was stored at {last}");
        context.add(Finding::new(FindingId::CheckpointAhead, &path, 0, what));
    }
    if checkpoint.logics_physical_offset >= context.bounds.end {
        let (at, end) = (checkpoint.logics_physical_offset, context.bounds.end);
        let what = format!("it says that the message at {at} was on disk, and the log ends at {end}");
        context.add(Finding::new(FindingId::CheckpointAhead, &path, 0, what));
    }
    Ok(())
}

/// Reports bytes after the end of the log.
pub(super) fn look_past_end(context: &mut Context<'_>) -> Result<()> {
    if context.writer == Writer::Live {
        return Ok(());
    }
    let (log, end) = (context.log, context.bounds.end);
    if context.writer == Writer::Closed
        && let Err(Error::Corrupt {
            path, offset, reason, ..
        }) = log.expect_last_segment_at(end)
    {
        context.add(Finding::new(FindingId::LogSegmentAfterEnd, &path, offset, reason));
        return Ok(());
    }
    let written = log.written_until(end)?;
    if written > end {
        let (path, position) = log.path_of(end);
        let what = format!("the log ends at {end}, and other bytes follow up to {written}");
        let finding = Finding::new(FindingId::LogBytesAfterEnd, &path, position, what);
        // A broker leaves what it has cut, and ends a segment when the next one does not exist yet.
        let is_left = context.writer == Writer::Closed;
        context.add(if is_left { finding.with(Severity::Note) } else { finding });
    }
    Ok(())
}

fn of_topic(topic: String) -> Affected {
    Affected {
        topic: Some(topic),
        ..Affected::default()
    }
}

/// Returns the files in a directory; none if it is missing.
fn files(env: &dyn Env, dir: &Path) -> Result<Vec<DirEntry>> {
    let mut entries = match env.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        listed => listed.map_err(|error| Error::io("list", PathBuf::from(dir), error))?,
    };
    entries.retain(|entry| entry.kind == EntryKind::File);
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}
