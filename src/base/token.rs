//! The fencing token: an integer that strictly grows from holder to holder of one name.

use std::{fmt, num::ParseIntError, str::FromStr};

/// A fencing token: strictly greater than every token given out for the same name before
/// ([assumptions](crate::docs::guarantees#what-they-rest-on)).
///
/// Hand it to the store that the lock protects, and let the store refuse a smaller one
/// ([`fence::Gate`](crate::fence::Gate)). A token is only compared and stored, so it has no arithmetic.
///
/// It is below 2^53, so that JSON and JavaScript keep it exactly. If nodes have forgotten their counters (all
/// restarted, or two days went by), the order rests on wall clocks: see [`docs::guarantees`](crate::docs::guarantees).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FencingToken(u64);

impl FencingToken {
    /// The greatest token: 2^53 − 1. A node refuses to count beyond it.
    pub(crate) const MAX: u64 = (1 << 53) - 1;

    pub(crate) const fn from_counter(counter: u64) -> Self {
        Self(counter)
    }

    /// The token as a number, for a store that keeps the greatest one it has seen.
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// The token as a signed number, for columns such as SQL's `BIGINT`. A token is below 2^53, so it is never negative
    /// and loses nothing, and the order stays the same.
    ///
    /// ```
    /// let token = quorate::FencingToken::try_from(42)?;
    /// assert_eq!(token.as_i64(), 42);
    /// # Ok::<(), quorate::NotAToken>(())
    /// ```
    pub const fn as_i64(self) -> i64 {
        self.0.cast_signed()
    }
}

/// The error for a number or a text that is not a valid fencing token: it is 2^53 or greater, or not a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAToken(String);

impl fmt::Display for NotAToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is not a fencing token: it must be an integer from 0 to 2^53 - 1",
            self.0
        )
    }
}

impl std::error::Error for NotAToken {}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}

impl TryFrom<u64> for FencingToken {
    type Error = NotAToken;

    fn try_from(number: u64) -> Result<Self, NotAToken> {
        if number > Self::MAX {
            return Err(NotAToken(number.to_string()));
        }
        Ok(Self(number))
    }
}

impl FromStr for FencingToken {
    type Err = NotAToken;

    fn from_str(text: &str) -> Result<Self, NotAToken> {
        let number: u64 = text
            .parse()
            .map_err(|_: ParseIntError| NotAToken(format!("{text:?}")))?;
        Self::try_from(number)
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for FencingToken {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for FencingToken {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = <u64 as serde::Deserialize>::deserialize(deserializer)?;
        Self::try_from(number).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_from_2_to_the_53_on_are_refused() {
        assert!(FencingToken::try_from((1 << 53) - 1).is_ok());
        assert!(FencingToken::try_from(1 << 53).is_err());
    }

    #[test]
    fn a_token_as_i64_has_the_same_value() {
        for number in [0, 1, FencingToken::MAX] {
            let token = FencingToken::try_from(number).unwrap();
            assert_eq!(u64::try_from(token.as_i64()), Ok(number));
        }
    }

    #[test]
    fn token_text_round_trips() {
        let token: FencingToken = "42".parse().unwrap();
        assert_eq!(token.to_string(), "42");
        assert!("-1".parse::<FencingToken>().is_err());
        assert!("".parse::<FencingToken>().is_err());
        assert!("9007199254740992".parse::<FencingToken>().is_err());
    }

    #[cfg(feature = "serde")]
    #[test]
    fn json_is_a_number() {
        let token = FencingToken::from_counter(7);
        assert_eq!(serde_json::to_string(&token).unwrap(), "7");
        assert_eq!(serde_json::from_str::<FencingToken>("7").unwrap(), token);
        assert!(serde_json::from_str::<FencingToken>("9007199254740992").is_err());
    }
}
