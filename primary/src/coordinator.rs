//! Who is who: generations, their masters and workers, and how one generation follows another. Pids, time and events
//! go in, decisions come out; the instance carries them out.

mod attempts;
mod pacing;
mod places;

pub use attempts::Attempts;
use pacing::Pacing;
pub use places::{Decision, EndedWorker, Places, Ready, Refused};
