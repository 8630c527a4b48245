//! A broker's work on a store, without a network: topics, consumer groups, retries, delayed messages, timers, transactions, retention.

/// A settings file of a broker, kept in memory and replaced as a whole.
mod settings_file;
/// The topics, their queues and permissions.
mod topic_config;
/// The settings of consumer groups.
mod subscription_group;
/// The mark of transactions, beside the progress of consumer groups.
mod transaction_mark;
/// The mark of cuts, in the file of the progress of groups.
mod cut_mark;
/// The groups whose progress is lost.
mod lost_progress;
/// The progress of consumer groups.
mod consumer_offset;
/// The service that persists the progress of a delivery.
mod progress_persister;
/// The progress of the delivery of delayed messages.
mod delay_offset;
/// The queue of a delay level.
mod delay_queue;
/// Copies of messages in the log.
mod copies;
/// The search for copies of delayed messages in the log.
mod delivered;
/// The two services of a delivery: one delivers, one persists the progress.
mod delivery;
/// The times at which delayed messages came.
mod arrivals;
/// The delivery of delayed messages.
mod delay;
/// The queue of timer messages.
mod timer_queue;
/// The search for copies of timer messages in the log.
mod timer_copies;
/// Recalls of timer messages.
mod timer_recalls;
/// The timer wheel of a broker.
mod timer_wheel;
/// The timer messages that wait, and the progress of their delivery.
mod timer_offset;
/// The judgement of timer messages, for readers.
mod timer_backlog;
/// The delivery of timer messages.
mod timer;
/// The records of a transaction: half, op and committed messages.
mod transaction_record;
/// The transactions that have ended, and the progress in half and op messages.
mod transaction_state;
/// The search for open transactions.
mod transaction_search;
/// Transactions: half messages and their ends.
mod transaction;
/// The open transactions of a store, for readers and for its writer.
mod open_transactions;
/// The questions about open transactions.
mod transaction_check;
/// The positions of a consumer that reads the store of another process, in a file of its user.
mod positions;
/// The messages of a queue that a group has handed out and not settled.
mod in_flight;
/// The division of queues among consumers.
mod allocate;
/// Messages that consumers send back, and dead letters.
mod retry;
/// The store of another process, with the positions of the consumer that reads it.
mod tap;
/// The store that a group reads, and the home of its progress.
mod group_store;
/// The consumers of one group in this process.
mod consumer_group;
/// A consumer of a group.
mod consumer;
/// The settings that a slave takes from its master.
mod replicated_settings;
/// The progress of a slave before its log is cut.
mod cut_settings;
/// The groups that have consumers, and the service that persists their progress.
mod consumer_groups;
/// Retention: the messages that are still needed, and the removal of the others.
mod retention;
/// Retention of a store that no writer has open.
mod trim_closed;
/// The segment that retention removes next.
mod next_removal;
/// The service that removes old segments by itself.
mod clean;
/// The services and settings of one store.
mod broker_controller;

pub use broker_controller::{BrokerController, BrokerService};
pub use clean::{CleanStats, CleanWarnings};
pub use consumer::Consumer;
pub use consumer_group::{QueuePosition, Start, Subscription};
pub use cut_settings::cut_settings;
pub use delay_offset::DelayStats;
pub use next_removal::{NextRemoval, next_removal};
pub use open_transactions::open_transactions;
pub use replicated_settings::{ReceivedSettings, ReplicatedFile};
pub use retention::{Hold, NeededBy, TrimReport};
pub use retry::Resent;
pub use timer::HandOver;
pub use timer_backlog::{TimerBacklog, TimerFate};
pub use topic_config::TopicSettings;
pub use transaction::{TransactionEnd, Transactions};
pub use transaction_check::{CheckRules, TransactionChecker};
pub use transaction_search::{OpenHalf, OpenHalves};
pub use transaction_state::UnreadEnds;
pub use trim_closed::{TrimRequest, trim_closed};
