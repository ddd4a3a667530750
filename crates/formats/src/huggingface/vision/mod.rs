//! Families that read pictures.

pub mod clip;
pub mod siglip;
pub mod patches;
mod towers;
pub mod vit;
