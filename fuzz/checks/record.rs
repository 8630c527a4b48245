//! Takes any bytes as a commit log: reads every record and every field, and encodes them again.

use mqstore::format::{Check, DelayLevels, DispatchRequest, MessageView, ProducerBatch, Record, read_record};

pub fn check(bytes: &[u8]) {
    for check in [Check::Structure, Check::Body, Check::Whole] {
        let mut rest = bytes;
        while let Record::Message(view) = read_record(rest, check) {
            read_all(&view, check);
            rest = &rest[view.size() as usize..];
        }
    }
}

fn read_all(view: &MessageView<'_>, check: Check) {
    let levels = DelayLevels::default();
    let _ = (
        DispatchRequest::of(view).tags_code(&levels),
        DispatchRequest::of(view).index_keys(true).count(),
        view.keys(),
        view.unique_key(),
        view.tags(),
    );
    let _ = (
        view.message_id().to_string(),
        view.transaction(),
        view.properties().to_pairs(),
    );
    let _ = ProducerBatch::new(view.body()).count();
    let again = MessageView::from_layout(view.bytes(), view.layout());
    assert_eq!(again.to_message(), view.to_message());
    if check == Check::Structure || view.body().is_empty() || std::str::from_utf8(view.topic_bytes()).is_err() {
        let _ = view.to_message().encode();
    } else {
        assert_eq!(view.to_message().encode().as_deref(), Ok(view.bytes()));
    }
}
