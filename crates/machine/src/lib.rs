//! What an op costs and where it may run: chip profiles, placement rules, latency.
//!
//! Everything here is a prediction from public facts; no tensor is computed. A [`Profile`] holds
//! the facts of one chip, each with its source; [`place`] says which engine runs each op and which
//! rule decided; [`estimate`] adds up the time.

mod cost;
mod place;
mod profile;
mod rules;

pub use cost::{Estimate, NotchHit, estimate, streaming_s};
pub use place::{Engine, Placed, Placement, place};
pub use profile::{Ane, Cpu, Evidence, Fact, Handoff, Notch, Profile, ProfileError};
pub use rules::{RULES, Rule};
