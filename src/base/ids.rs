//! Maps by numbers that this process counts itself.

/// A map by such numbers. No outsider chooses them, so they need no hash that withstands attackers. The standard
/// library's hash takes four times as long, and an engine looks something up for every answer of every node.
pub(crate) type ById<K, V> = hashbrown::HashMap<K, V>;
