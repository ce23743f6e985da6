//! Requests and replies.

use serde::{Deserialize, Serialize};

use crate::{Status, WorkerPlan};

/// What a client asks of the primary.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// The whole status document.
    Status,
    /// A worker wants a place. Sent by the worker itself, before it starts DPDK and while it is still root;
    /// the primary checks `pid` against the socket's peer credentials and watches it from here on.
    Attach {
        /// Must equal [`crate::PROTOCOL_VERSION`].
        protocol: u32,
        /// The worker.
        pid: u32,
        /// Its nginx master (parent).
        master_pid: u32,
        /// Which of its master's configurations it runs: 0 for the one that nginx was started with, and one more
        /// for each that was loaded since. All workers of a generation have the same.
        configuration: u32,
    },
    /// nginx's master could not load the configuration that it was told to load, and goes on with the one it has.
    ReloadFailed {
        /// The master.
        master_pid: u32,
    },
    /// Whether a reload could begin now; nothing is begun. The answer is [`Reply::Ok`], or the refusal that the
    /// reload would meet.
    MayReload {
        /// Workers in the new configuration.
        workers: u16,
    },
    /// The load generator wants the client side of the in-memory wire.
    AttachClient {
        /// Must equal [`crate::PROTOCOL_VERSION`].
        protocol: u32,
        /// The client process.
        pid: u32,
    },
    /// The worker could not finish its attach; the sentence goes into the log and to `ffctl start`.
    AttachFailed {
        /// The worker.
        pid: u32,
        /// Why, as one sentence.
        reason: String,
    },
    /// The worker has stored its READY word. Only a wake-up: the word in shared memory is the truth.
    Ready {
        /// The worker.
        pid: u32,
    },
    /// End the primary: it unlinks what it made and exits. Refused while workers live, unless `force`.
    Shutdown {
        /// End even though workers live (they lose their device).
        force: bool,
    },
}

/// What the primary answers.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// To [`Request::Status`].
    Status(Box<Status>),
    /// To [`Request::Attach`] and [`Request::AttachClient`]; descriptors of an `af_packet` device come beside it, see
    /// [`crate::DevicePlan::AfPacket`].
    Plan(Box<WorkerPlan>),
    /// Done.
    Ok,
    /// Not done; one sentence for a person.
    Refused(Refusal),
}

/// Why the primary did not do it.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, thiserror::Error)]
#[error("{reason}")]
pub struct Refusal {
    /// Short machine-readable word, for example `protocol`, `no_free_queue`, `workers_alive`.
    pub code: String,
    /// One sentence that says what is wrong and what to do.
    pub reason: String,
}
