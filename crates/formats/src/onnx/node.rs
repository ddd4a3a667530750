//! Attributes of a node, by name.

use super::proto::{AttributeProto, GraphProto, TensorProto};

/// The attributes of a node; in a function's body, with those of the call in the place of
/// references to them.
#[derive(Debug, Clone, Default)]
pub struct Attributes<'m>(Vec<(&'m str, &'m AttributeProto)>);

impl<'m> Attributes<'m> {
    #[cfg(test)]
    pub fn none() -> Attributes<'m> {
        Attributes(Vec::new())
    }

    /// Of a node whose references mean attributes of `call`; those that are not there are absent.
    pub fn of(list: &'m [AttributeProto], call: &Attributes<'m>) -> Attributes<'m> {
        let one = |a: &'m AttributeProto| match a.ref_attr_name.as_str() {
            "" => Some((a.name.as_str(), a)),
            reference => Some((a.name.as_str(), call.get(reference)?)),
        };
        Attributes(list.iter().filter_map(one).collect())
    }

    /// These, then `defaults` for names that are not among them.
    pub fn or(mut self, defaults: &'m [AttributeProto]) -> Attributes<'m> {
        for a in defaults {
            if self.get(&a.name).is_none() {
                self.0.push((&a.name, a));
            }
        }
        self
    }

    fn get(&self, name: &str) -> Option<&'m AttributeProto> {
        self.0.iter().find(|a| a.0 == name).map(|a| a.1)
    }

    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub fn int(&self, name: &str) -> Option<i64> {
        self.get(name).map(|a| a.i)
    }

    pub fn float(&self, name: &str) -> Option<f32> {
        self.get(name).map(|a| a.f)
    }

    pub fn text(&self, name: &str) -> Option<&'m str> {
        std::str::from_utf8(&self.get(name)?.s).ok()
    }

    pub fn ints(&self, name: &str) -> Option<&'m [i64]> {
        self.get(name).map(|a| a.ints.as_slice())
    }

    pub fn floats(&self, name: &str) -> Option<&'m [f32]> {
        self.get(name).map(|a| a.floats.as_slice())
    }

    pub fn texts(&self, name: &str) -> Option<Vec<String>> {
        let strings = &self.get(name)?.strings;
        Some(strings.iter().map(|s| String::from_utf8_lossy(s).into_owned()).collect())
    }

    pub fn tensor(&self, name: &str) -> Option<&'m TensorProto> {
        self.get(name)?.t.as_ref()
    }

    pub fn graph(&self, name: &str) -> Option<&'m GraphProto> {
        self.get(name)?.g.as_ref()
    }

    pub fn attribute(&self, name: &str) -> Option<&'m AttributeProto> {
        self.get(name)
    }
}
