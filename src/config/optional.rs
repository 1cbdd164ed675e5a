//! Settings that may be left out, and that the text `none` switches off.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{self, IntoDeserializer, value},
};

/// What switches an optional setting off, in the file or in a variable.
pub(super) const NONE: &str = "none";

/// Reads a setting that is optional.
pub(super) fn optional<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    deserializer.deserialize_any(Visitor(PhantomData))
}

/// Reads a list, of which `none` means that it is empty.
pub(super) fn list<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    optional(deserializer).map(Option::unwrap_or_default)
}

/// Hands all but `none` on to the setting's own type.
struct Visitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> de::Visitor<'de> for Visitor<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, or \"none\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        if text == NONE { Ok(None) } else { T::deserialize(text.into_deserializer()).map(Some) }
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Self::Value, E> {
        T::deserialize(value.into_deserializer()).map(Some)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
        T::deserialize(number.into_deserializer()).map(Some)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
        T::deserialize(number.into_deserializer()).map(Some)
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Self::Value, E> {
        T::deserialize(number.into_deserializer()).map(Some)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_none<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        optional(deserializer)
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
        T::deserialize(value::SeqAccessDeserializer::new(list)).map(Some)
    }

    fn visit_map<A: de::MapAccess<'de>>(self, table: A) -> Result<Self::Value, A::Error> {
        T::deserialize(value::MapAccessDeserializer::new(table)).map(Some)
    }
}
