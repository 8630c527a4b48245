//! What a broker does with a store, without a network: topics, consumer groups, retries, delayed messages.

/// A settings file of a broker, kept in memory and replaced as a whole.
mod settings_file;
/// The progress of consumer groups.
mod consumer_offset;
/// The services and settings of one store.
mod broker_controller;

pub use broker_controller::BrokerController;
