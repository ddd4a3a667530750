//! Families that hear.

mod conformer;
pub mod parakeet;
pub mod wav2vec2;
mod waves;
pub mod whisper;
mod whisper_decoder;
