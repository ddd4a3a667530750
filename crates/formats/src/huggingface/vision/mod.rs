//! Families that read pictures.

pub mod clip;
pub mod patches;
pub mod siglip;
mod towers;
pub mod vit;
