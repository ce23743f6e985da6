//! Who is who: generations, their masters and workers. Pure code: pids, time and events go in, decisions come out; the
//! server carries them out. The handover between two generations will live beside it.

mod pacing;
mod places;

use pacing::Pacing;
pub use places::{Decision, Ended, Places, Ready};
