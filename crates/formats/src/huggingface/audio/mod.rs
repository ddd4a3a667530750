//! Families that hear.

mod conformer;
pub mod parakeet;
mod waves;
pub mod wav2vec2;
pub mod whisper;
