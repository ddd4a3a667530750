//! The facts of one chip, read from `profiles/CHIP.toml`.

use serde::Deserialize;

/// How a number is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// Stated by the maker.
    Vendor,
    /// Measured by the named source.
    Measured,
    /// Fitted here to the named measurements.
    Fitted,
    /// Read out of a compiler or firmware by the named source.
    ReverseEngineered,
    /// Our reading; nobody measured it.
    Assumed,
}

/// A number with its source. The unit is the last word of the field's name.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fact {
    pub value: f64,
    pub from: Evidence,
    /// Where to look it up.
    pub see: String,
}

/// One chip.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// What a user types: `m4-pro`.
    pub name: String,
    /// What people call it.
    pub chip: String,
    /// The compiler's name of the engine generation, such as `h16`.
    pub family: String,
    pub engines: Engines,
    pub handoff: Handoff,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Engines {
    pub ane: Ane,
    pub cpu: Cpu,
}

/// The Neural Engine.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ane {
    pub claimed_ops_per_s: Fact,
    /// Streams over which a task's weights are spread.
    pub n_cores: Fact,
    /// Time of a call that does nothing.
    pub dispatch_s: Fact,
    pub weight_bytes_per_s: Fact,
    /// fp16, two operations per multiply-accumulate.
    pub peak_flops_per_s: Fact,
    pub vector_elements_per_s: Fact,
    /// Largest extent of an axis other than channels and batch.
    pub extent_max: Fact,
    /// Magnitude from which matmul and conv outputs are infinite.
    pub matmul_limit: Fact,
    /// The slow weight-transfer path; absent where none was seen.
    pub notch: Option<Notch>,
}

/// Weight transfers of about a multiple of `period_bytes` per core are slow.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Notch {
    pub period_bytes: Fact,
    /// Distance from a multiple at which speed is back to normal; linear in between.
    pub half_width_bytes: Fact,
    /// All cores together, on a multiple.
    pub floor_bytes_per_s: Fact,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cpu {
    pub bytes_per_s: Fact,
    pub flops_per_s: Fact,
}

/// Passing values from one engine to another.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handoff {
    pub seconds: Fact,
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ProfileError {
    #[error("no chip is called `{name}`; known: {}", .known.join(", "))]
    Unknown { name: String, known: Vec<&'static str> },
    #[error("profile `{name}`: {why}")]
    Broken { name: String, why: String },
}

/// The built-in profiles, in the order in which chips appeared.
const BUILT_IN: &[(&str, &str)] = &[
    ("m1", include_str!("../../../profiles/m1.toml")),
    ("m3", include_str!("../../../profiles/m3.toml")),
    ("m4", include_str!("../../../profiles/m4.toml")),
    ("m4-pro", include_str!("../../../profiles/m4-pro.toml")),
];

impl Profile {
    /// Names of the built-in profiles.
    pub fn names() -> Vec<&'static str> {
        BUILT_IN.iter().map(|(name, _)| *name).collect()
    }

    /// The built-in profile called `name`.
    pub fn named(name: &str) -> Result<Profile, ProfileError> {
        let found = BUILT_IN.iter().find(|(n, _)| *n == name);
        let unknown = || ProfileError::Unknown { name: name.into(), known: Profile::names() };
        Profile::parse(name, found.ok_or_else(unknown)?.1)
    }

    /// A profile from the text of a `.toml` file.
    pub fn parse(name: &str, text: &str) -> Result<Profile, ProfileError> {
        let broken = |why: String| ProfileError::Broken { name: name.into(), why };
        let profile: Profile = toml::from_str(text).map_err(|e| broken(e.to_string()))?;
        for (field, fact) in profile.facts() {
            if !(fact.value.is_finite() && fact.value > 0.0) {
                return Err(broken(format!("`{field}` is {}, not a positive number", fact.value)));
            }
            if fact.see.trim().is_empty() {
                return Err(broken(format!("`{field}` has no source")));
            }
        }
        Ok(profile)
    }

    /// Every fact with its name, for listings and checks.
    pub fn facts(&self) -> Vec<(&'static str, &Fact)> {
        let (ane, cpu) = (&self.engines.ane, &self.engines.cpu);
        let mut all = vec![
            ("ane.claimed_ops_per_s", &ane.claimed_ops_per_s),
            ("ane.n_cores", &ane.n_cores),
            ("ane.dispatch_s", &ane.dispatch_s),
            ("ane.weight_bytes_per_s", &ane.weight_bytes_per_s),
            ("ane.peak_flops_per_s", &ane.peak_flops_per_s),
            ("ane.vector_elements_per_s", &ane.vector_elements_per_s),
            ("ane.extent_max", &ane.extent_max),
            ("ane.matmul_limit", &ane.matmul_limit),
            ("cpu.bytes_per_s", &cpu.bytes_per_s),
            ("cpu.flops_per_s", &cpu.flops_per_s),
            ("handoff.seconds", &self.handoff.seconds),
        ];
        if let Some(notch) = &ane.notch {
            all.extend([
                ("ane.notch.period_bytes", &notch.period_bytes),
                ("ane.notch.half_width_bytes", &notch.half_width_bytes),
                ("ane.notch.floor_bytes_per_s", &notch.floor_bytes_per_s),
            ]);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_profile_reads() {
        for name in Profile::names() {
            assert_eq!(Profile::named(name).unwrap().name, name);
        }
        let error = Profile::named("m99").unwrap_err().to_string();
        assert!(error.contains("m4-pro"), "{error}");
    }

    #[test]
    fn facts_without_sense_or_source_are_refused() {
        let good = BUILT_IN[2].1;
        let zero = good.replace("value = 0.081e-3", "value = 0");
        assert!(Profile::parse("x", &zero).unwrap_err().to_string().contains("dispatch_s"));
        let unsourced = good.replace(", see = \"Apple M4 announcement; an int8 rate\"", "");
        assert!(Profile::parse("x", &unsourced).is_err());
        assert!(Profile::parse("x", &good.replace("dispatch_s", "dispatch_ms")).is_err());
    }
}
