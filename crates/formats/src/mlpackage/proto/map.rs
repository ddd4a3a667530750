//! Maps of messages, which remember in which order they were written.

use std::collections::{BTreeMap, HashMap};

/// Entries by name, in the order they were put in. Writing a message that was read thus gives the
/// bytes it was read from; `coremltools` writes maps in no particular order.
///
/// Two maps are equal when their entries are, in whatever order.
#[derive(Debug, Clone)]
pub struct Map<V> {
    entries: Vec<(String, V)>,
    /// Where the entries are; empty while there are few.
    index: HashMap<String, usize>,
}

/// Entries that are searched one by one.
const FEW: usize = 16;

impl<V> Default for Map<V> {
    fn default() -> Map<V> {
        Map { entries: Vec::new(), index: HashMap::new() }
    }
}

impl<V> Map<V> {
    fn position(&self, key: &str) -> Option<usize> {
        match self.entries.len() {
            0..=FEW => self.entries.iter().position(|e| e.0 == key),
            _ => self.index.get(key).copied(),
        }
    }

    pub fn get(&self, key: &str) -> Option<&V> {
        self.position(key).map(|i| &self.entries[i].1)
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut V> {
        self.position(key).map(|i| &mut self.entries[i].1)
    }

    pub fn contains_key(&self, key: &str) -> bool {
        self.position(key).is_some()
    }

    /// Puts `value` in place of what was there, or at the end.
    pub fn insert(&mut self, key: String, value: V) {
        if let Some(i) = self.position(&key) {
            self.entries[i].1 = value;
            return;
        }
        if self.entries.len() == FEW {
            self.index = self.entries.iter().enumerate().map(|(i, e)| (e.0.clone(), i)).collect();
        }
        if self.entries.len() >= FEW {
            self.index.insert(key.clone(), self.entries.len());
        }
        self.entries.push((key, value));
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// In the order of the message.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&String, &V)> {
        self.entries.iter().map(|(k, v)| (k, v))
    }

    pub fn keys(&self) -> impl Iterator<Item = &String> {
        self.entries.iter().map(|e| &e.0)
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.iter().map(|e| &e.1)
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.entries.iter_mut().map(|e| &mut e.1)
    }

    /// By name: the order in which Apple's tools print.
    pub fn sorted(&self) -> Vec<(&String, &V)> {
        let mut all: Vec<_> = self.iter().collect();
        all.sort_by_key(|e| e.0);
        all
    }
}

impl<V: PartialEq> PartialEq for Map<V> {
    fn eq(&self, other: &Map<V>) -> bool {
        self.len() == other.len() && self.iter().all(|(k, v)| other.get(k) == Some(v))
    }
}

impl<V> FromIterator<(String, V)> for Map<V> {
    fn from_iter<I: IntoIterator<Item = (String, V)>>(entries: I) -> Map<V> {
        let mut map = Map::default();
        entries.into_iter().for_each(|(k, v)| map.insert(k, v));
        map
    }
}

impl<V> From<BTreeMap<String, V>> for Map<V> {
    fn from(map: BTreeMap<String, V>) -> Map<V> {
        map.into_iter().collect()
    }
}

impl<V> IntoIterator for Map<V> {
    type Item = (String, V);
    type IntoIter = std::vec::IntoIter<(String, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_entries_are_found_replaced_and_kept_in_order() {
        let mut map = Map::default();
        for i in (0..100).rev() {
            map.insert(i.to_string(), i);
        }
        for i in 0..100 {
            assert_eq!(map.get(&i.to_string()), Some(&i));
            map.insert(i.to_string(), i + 1);
        }
        assert_eq!(map.len(), 100);
        assert_eq!(map.iter().next(), Some((&"99".to_owned(), &100)));
        let other: Map<i32> = map.sorted().into_iter().map(|(k, v)| (k.clone(), *v)).collect();
        assert_eq!(map, other);
        assert_eq!(map.get("100"), None);
    }
}
