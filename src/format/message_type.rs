use super::properties::{Properties, property};

/// The type of the messages that a topic takes: the attribute `message.type` of a topic, since 5.x.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageType {
    /// No type is stated: any message.
    Unspecified,
    /// Messages without delay, transaction and sharding key.
    Normal,
    /// Messages with a sharding key.
    Fifo,
    /// Messages that are delivered later: by a delay level or a timer.
    Delay,
    /// Messages of transactions.
    Transaction,
    /// Any message.
    Mixed,
}

impl MessageType {
    /// Each type with its name.
    pub const NAMES: [(&str, Self); 6] = [
        ("UNSPECIFIED", Self::Unspecified),
        ("NORMAL", Self::Normal),
        ("FIFO", Self::Fifo),
        ("DELAY", Self::Delay),
        ("TRANSACTION", Self::Transaction),
        ("MIXED", Self::Mixed),
    ];

    /// Returns the type of this name; `None` for another name, such as that of a later version.
    pub fn parse(name: &str) -> Option<Self> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, named)| *named)
    }

    /// Returns the name of the type.
    pub fn name(self) -> &'static str {
        let found = Self::NAMES.iter().find(|(_, known)| *known == self);
        found.map_or("", |(name, _)| name)
    }

    /// Returns the type of a message with these properties. A transaction comes first, then a delay, as in `RocketMQ`.
    pub fn of_message(properties: &[u8]) -> Self {
        let properties = Properties::new(properties);
        let is_delayed = || {
            let delays = [
                property::DELAY,
                property::TIMER_DELIVER_MS,
                property::TIMER_DELAY_SEC,
                property::TIMER_DELAY_MS,
            ];
            delays.iter().any(|name| properties.get(name).is_some())
        };
        if properties.get(property::TRAN_MSG).is_some_and(|value| value == "true") {
            Self::Transaction
        } else if is_delayed() {
            Self::Delay
        } else if properties.get(property::SHARDING_KEY).is_some() {
            Self::Fifo
        } else {
            Self::Normal
        }
    }

    /// Returns true if a topic of this type takes messages of the type `of_message`.
    pub fn takes(self, of_message: Self) -> bool {
        matches!(self, Self::Unspecified | Self::Mixed) || self == of_message
    }
}
