//! A topic that was deleted and made again, of which a message is damaged: the messages of the earlier topic take no place of it.

use mqstore::config::StoreConfig;
use mqstore::read::MessageReader;
use tempfile::tempdir_in;

use super::{env, rebuilt, repaired};
use crate::store_writer::StoreWriter;
use crate::verifying::table::edit;
use crate::verifying::{told, verified};

#[test]
fn messages_of_an_earlier_topic_replace_none_that_was_lost() {
    for (new, damaged) in [(5, 2), (5, 0), (3, 2), (5, 4)] {
        for crashed in [false, true] {
            let case = format!("{damaged} of {new}, crashed {crashed}");
            let dir = tempdir_in("/dev/shm").unwrap();
            let (root, into) = (dir.path().join("store"), dir.path().join("into"));
            let mut writer = StoreWriter::small(&root);
            for _ in 0..8 {
                writer.put("orders", 0, &[b'o'; 100], &[]);
            }
            writer.put("stock", 0, &[b's'; 100], &[]);
            writer.delete_topic("orders");
            let offsets: Vec<i64> = (0..new).map(|_| writer.put("orders", 0, &[b'n'; 100], &[])).collect();
            writer.put("stock", 0, &[b's'; 100], &[]);
            writer.finish(!crashed);
            edit(&root.join("commitlog/00000000000000000000"), |bytes| {
                bytes[offsets[damaged] as usize + 140] ^= 1;
            });
            let report = repaired(&root, false, Some(&into)).unwrap();
            assert!(report.left.is_empty(), "{case}: {report:?}");
            for is_rebuilt in [false, true] {
                if is_rebuilt {
                    rebuilt(&into, false).unwrap();
                }
                let found = verified(&into);
                assert!(found.is_ok(), "{case}: {}", told(&found));
                let reader = MessageReader::open(&env(), &into, StoreConfig::default()).unwrap();
                assert_eq!(reader.queue_bounds("orders", 0).unwrap(), 0..i64::from(new), "{case}");
                for (n, offset) in offsets.iter().enumerate() {
                    match reader.message_in_queue("orders", 0, n as i64) {
                        Ok(message) => assert_eq!(message.view().physical_offset(), *offset, "{case}: {n}"),
                        Err(error) => assert!(n == damaged, "{case}: {n}: {error}"),
                    }
                }
            }
        }
    }
}
