//! Which names the values of a graph have, so that a new one is found without looking at them all.

use std::collections::HashMap;

/// Names that are taken. A name may be taken several times: the verifier reports it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    taken: HashMap<String, Taken>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Taken {
    n_values: usize,
    /// Variations of the name up to this number were found taken: nobody looks at them again.
    n_tried: u64,
}

impl Names {
    pub fn add(&mut self, name: &str) {
        self.taken.entry(name.to_owned()).or_default().n_values += 1;
    }

    pub fn remove(&mut self, name: &str) {
        if let Some(t) = self.taken.get_mut(name) {
            t.n_values = t.n_values.saturating_sub(1);
        }
    }

    fn has(&self, name: &str) -> bool {
        self.taken.get(name).is_some_and(|t| t.n_values > 0)
    }

    /// `name`, or a `name_1`, `name_2`, … that no value has.
    pub fn unique(&mut self, name: &str) -> String {
        if !self.has(name) {
            return name.to_owned();
        }
        let mut i = self.taken.get(name).map_or(0, |t| t.n_tried);
        let free = loop {
            i += 1;
            let candidate = format!("{name}_{i}");
            if !self.has(&candidate) {
                break candidate;
            }
        };
        self.taken.entry(name.to_owned()).or_default().n_tried = i - 1;
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_names_are_found_and_forgotten_ones_are_free() {
        let mut names = Names::default();
        for want in ["x", "x_1", "x_2"] {
            assert_eq!(names.unique("x"), want);
            names.add(want);
        }
        assert_eq!(names.unique("x_1"), "x_1_1");
        names.remove("x");
        assert_eq!(names.unique("x"), "x");
    }
}
