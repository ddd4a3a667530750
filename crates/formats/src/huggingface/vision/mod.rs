//! Families that read pictures.

pub mod clip;
pub mod siglip;
mod patches;
mod towers;
pub mod vit;
