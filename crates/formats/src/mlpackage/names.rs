//! Distinct names for values.

use std::collections::HashMap;

/// Names that are taken, each with the number of the next variation of it.
#[derive(Default)]
pub struct Names {
    taken: HashMap<String, u64>,
}

impl Names {
    pub fn of(names: impl IntoIterator<Item = String>) -> Names {
        Names { taken: names.into_iter().map(|n| (n, 1)).collect() }
    }

    /// `name`, or the first free of `name_1`, `name_2`, …, which is then taken.
    pub fn unique(&mut self, name: &str) -> String {
        let mut next = self.taken.get(name).copied().unwrap_or(0);
        let free = loop {
            let candidate = if next == 0 { name.to_owned() } else { format!("{name}_{next}") };
            next += 1;
            if !self.taken.contains_key(&candidate) {
                break candidate;
            }
        };
        self.taken.insert(free.clone(), 1);
        // The next who asks for `name` goes on from here: many equal names stay cheap.
        self.taken.insert(name.to_owned(), next);
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_distinct() {
        let mut names = Names::of(["x_1".to_owned()]);
        let made: Vec<String> = (0..3).map(|_| names.unique("x")).collect();
        assert_eq!(made, ["x", "x_2", "x_3"]);
        assert_eq!(names.unique("x_1"), "x_1_1");
    }
}
