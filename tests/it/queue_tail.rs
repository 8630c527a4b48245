//! The in-memory tail of a queue, compared with a map of single entries.

use std::collections::BTreeMap;

use mqstore::format::CqUnit;
use mqstore::log::QueueTail;
use proptest::prelude::*;

fn unit(physical_offset: i64) -> CqUnit {
    CqUnit {
        physical_offset,
        size: 100,
        tags_code: 0,
    }
}

proptest! {
    #[test]
    fn entries_put_in_any_order_are_those_of_a_map(
        stretches in prop::collection::vec((0..60_i64, 1..9_i64), 1..12),
        forgotten in prop::collection::vec(0..80_i64, 0..4),
        joined in any::<bool>(),
    ) {
        let (mut tail, mut map) = (QueueTail::default(), BTreeMap::new());
        for (number, (start, len)) in stretches.into_iter().enumerate() {
            let entries = (start..start + len).map(|offset| (offset, unit(offset * 1000 + number as i64)));
            if joined {
                tail.extend(entries.clone().collect());
                map.extend(entries);
            } else {
                for (offset, unit) in entries {
                    prop_assert_eq!(tail.insert(offset, unit), map.insert(offset, unit));
                }
            }
            if let Some(end) = forgotten.get(number) {
                tail.forget_before(*end);
                map = map.split_off(end);
            }
            prop_assert!(tail.iter().eq(map.iter().map(|(offset, unit)| (*offset, *unit))));
            prop_assert_eq!((tail.len(), tail.is_empty()), (map.len(), map.is_empty()));
            prop_assert_eq!(tail.first(), map.keys().next().copied());
            prop_assert_eq!(tail.end(), map.keys().next_back().map(|last| last + 1));
            for offset in -1..90 {
                prop_assert_eq!(tail.get(offset), map.get(&offset).copied());
                prop_assert_eq!(tail.next(offset..), map.range(offset..).next().map(|(offset, _)| *offset));
            }
        }
    }
}
