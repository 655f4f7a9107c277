//! What a line is compared with: literal fields, `*` for any one field, `...` for the rest,
//! `1.5..2` for a number in that range, `<id>` for the client's id, `#1` for a tag.
//!
//! Tags are names here: the number that a name stands for is learned where it is first met, is the same
//! from then on, and no other name's. So a scenario does not depend on how a client counts.

use std::collections::HashMap;

/// A line of a play that something seen must match.
#[derive(Debug)]
pub(crate) struct Pattern {
    text: String,
    fields: Vec<Field>,
}

#[derive(Debug)]
enum Field {
    Literal(String),
    Any,
    Rest,
    Range(f64, f64),
    Tag {
        name: String,
        attempt: Attempt,
    },
    AnyTag,
    /// A prefix such as `id=` and then the client's id.
    Id(String),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Attempt {
    Number(u32),
    Any,
}

/// What the names in a play stand for.
#[derive(Debug, Default)]
pub(crate) struct Names {
    tags: HashMap<String, u64>,
    last_attempt: HashMap<String, u32>,
    last_tag: Option<String>,
    id: Option<String>,
}

impl Pattern {
    /// Reads a pattern.
    pub(crate) fn parse(text: &str) -> Result<Pattern, String> {
        Ok(Pattern {
            text: text.to_owned(),
            fields: text.split(' ').map(field).collect::<Result<_, _>>()?,
        })
    }

    /// As it stands in the play.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether the line is of this form; if so, the names in it are learned.
    pub(crate) fn matches(&self, line: &str, names: &mut Names) -> bool {
        let mut learned = Vec::new();
        let mut words = line.split(' ');
        for field in &self.fields {
            if matches!(field, Field::Rest) {
                words.by_ref().for_each(drop);
                break;
            }
            let Some(word) = words.next() else {
                return false;
            };
            if !field.matches(word, names, &mut learned) {
                return false;
            }
        }
        if words.next().is_some() {
            return false;
        }
        learned.into_iter().for_each(|fact| names.learn(fact));
        true
    }
}

enum Fact {
    Tag {
        name: Option<String>,
        number: u64,
        attempt: u32,
    },
    Id(String),
}

impl Field {
    fn matches(&self, word: &str, names: &Names, learned: &mut Vec<Fact>) -> bool {
        match self {
            Field::Literal(text) => text == word,
            Field::Any => !word.is_empty(),
            Field::Rest => true,
            Field::Range(from, to) => word
                .parse::<f64>()
                .is_ok_and(|number| (*from..=*to).contains(&number)),
            Field::AnyTag => tag(word).is_some_and(|(number, attempt)| {
                learned.push(Fact::Tag {
                    name: None,
                    number,
                    attempt,
                });
                true
            }),
            Field::Tag { name, attempt } => {
                let Some((number, have)) = tag(word) else {
                    return false;
                };
                let fits = match names.tags.get(name) {
                    Some(known) => *known == number,
                    None => !names.tags.values().any(|other| *other == number),
                };
                learned.push(Fact::Tag {
                    name: Some(name.clone()),
                    number,
                    attempt: have,
                });
                fits && (*attempt == Attempt::Any || *attempt == Attempt::Number(have))
            }
            Field::Id(prefix) => word.strip_prefix(prefix.as_str()).is_some_and(|id| {
                learned.push(Fact::Id(id.to_owned()));
                let form = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
                form && names.id.as_ref().is_none_or(|known| known == id)
            }),
        }
    }
}

impl Names {
    fn learn(&mut self, fact: Fact) {
        match fact {
            Fact::Tag {
                name,
                number,
                attempt,
            } => {
                self.last_tag = Some(spell(number, attempt));
                if let Some(name) = name {
                    self.last_attempt.insert(name.clone(), attempt);
                    self.tags.insert(name, number);
                }
            }
            Fact::Id(id) => self.id = Some(id),
        }
    }

    /// A line for the client, with the numbers that its tags stand for: `#1`, `#1.2`, `#1.?` (the
    /// attempt last seen), `#?` (the tag last seen).
    pub(crate) fn fill(&self, line: &str) -> Result<String, String> {
        let mut out = String::new();
        let mut rest = line;
        while let Some(at) = rest.find('#') {
            out.push_str(&rest[..at]);
            let end = rest[at + 1..]
                .find(|c: char| !(c.is_ascii_alphanumeric() || c == '.' || c == '?'))
                .map_or(rest.len(), |length| at + 1 + length);
            match &rest[at + 1..end] {
                "" => out.push('#'),
                name => out.push_str(&self.tag_for(name)?),
            }
            rest = &rest[end..];
        }
        out.push_str(rest);
        Ok(out)
    }

    fn tag_for(&self, name: &str) -> Result<String, String> {
        if let Some(literal) = name.strip_prefix("raw") {
            return Ok(format!("#{literal}"));
        }
        if name == "?" {
            return self
                .last_tag
                .clone()
                .ok_or_else(|| "no tag was seen yet".to_owned());
        }
        let (name, attempt) = name.split_once('.').unwrap_or((name, "0"));
        let number = self
            .tags
            .get(name)
            .ok_or_else(|| format!("the tag #{name} was not seen yet"))?;
        let attempt = match attempt {
            "?" => self.last_attempt.get(name).copied().unwrap_or(0),
            attempt => attempt
                .parse()
                .map_err(|_| format!("not an attempt: {attempt}"))?,
        };
        Ok(spell(*number, attempt))
    }

    /// A line that came, with the names that are known in the place of ids and tags.
    pub(crate) fn normal(&self, line: &str) -> String {
        let words: Vec<String> = line
            .split(' ')
            .map(|word| {
                if let Some((number, attempt)) = tag(word) {
                    let name = self.tags.iter().find(|(_, known)| **known == number);
                    return match (name, attempt) {
                        (Some((name, _)), 0) => format!("#{name}"),
                        (Some((name, _)), attempt) => format!("#{name}.{attempt}"),
                        (None, _) => word.to_owned(),
                    };
                }
                match (word.strip_prefix("id="), &self.id) {
                    (Some(id), Some(known)) if id == known => "id=<id>".to_owned(),
                    _ => word.to_owned(),
                }
            })
            .collect();
        words.join(" ")
    }
}

fn spell(number: u64, attempt: u32) -> String {
    match attempt {
        0 => format!("#{number}"),
        attempt => format!("#{number}.{attempt}"),
    }
}

fn tag(word: &str) -> Option<(u64, u32)> {
    let text = word.strip_prefix('#')?;
    match text.split_once('.') {
        None => Some((text.parse().ok()?, 0)),
        Some((number, attempt)) => Some((number.parse().ok()?, attempt.parse().ok()?)),
    }
}

/// What stands behind `#` in a tag. A key may begin with `#` too, and then has other characters in it.
fn is_tag_name(name: &str) -> bool {
    let sign = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'?';
    !name.is_empty() && name.bytes().all(sign)
}

fn field(text: &str) -> Result<Field, String> {
    if text == "..." {
        return Ok(Field::Rest);
    }
    if text == "*" {
        return Ok(Field::Any);
    }
    if let Some(tag) = text.strip_prefix('#').filter(|tag| is_tag_name(tag)) {
        if tag == "?" {
            return Ok(Field::AnyTag);
        }
        let (name, attempt) = tag.split_once('.').unwrap_or((tag, "0"));
        let attempt = match attempt {
            "?" => Attempt::Any,
            number => Attempt::Number(number.parse().map_err(|_| format!("not a tag: {text}"))?),
        };
        return Ok(Field::Tag {
            name: name.to_owned(),
            attempt,
        });
    }
    if let Some(prefix) = text.strip_suffix("<id>") {
        return Ok(Field::Id(prefix.to_owned()));
    }
    if let Some((from, to)) = text.split_once("..")
        && let (Ok(from), Ok(to)) = (from.parse(), to.parse())
    {
        return Ok(Field::Range(from, to));
    }
    Ok(Field::Literal(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, line: &str, names: &mut Names) -> bool {
        Pattern::parse(pattern)
            .expect("the pattern is right")
            .matches(line, names)
    }

    #[test]
    fn fields_are_compared_one_by_one() {
        let names = &mut Names::default();
        assert!(matches("A k 30 0", "A k 30 0", names));
        assert!(!matches("A k 30 0", "A k 30", names));
        assert!(!matches("A k 30", "A k 30 0", names));
        assert!(matches("A k 30 4.5..5", "A k 30 4.831", names));
        assert!(!matches("A k 30 4.5..5", "A k 30 5.1", names));
        assert!(!matches("A k 30 4.5..5", "A k 30 -", names));
        assert!(matches("H 1 ...", "H 1 id=x name=y", names));
        assert!(matches("K k 1 *", "K k 1 30", names));
    }

    #[test]
    fn a_tag_keeps_its_number_and_shares_it_with_no_other() {
        let names = &mut Names::default();
        assert!(matches("A k #1", "A k #7", names));
        assert!(matches("A k #1.1", "A k #7.1", names));
        assert!(!matches("A k #1.1", "A k #7.2", names));
        assert!(!matches("A k #1", "A k #8", names));
        assert!(!matches("A k #2", "A k #7", names));
        assert!(matches("A k #2.?", "A k #8.3", names));
        assert!(matches("R k #?", "R k #9", names));
        assert_eq!(names.fill("A k 1 #1").as_deref(), Ok("A k 1 #7"));
        assert_eq!(
            names.fill("A k 1 #1.4\nT k #2.?\n").as_deref(),
            Ok("A k 1 #7.4\nT k #8.3\n")
        );
        assert_eq!(names.fill("R k ok #?").as_deref(), Ok("R k ok #9"));
        assert_eq!(names.fill("R k ok #raw77").as_deref(), Ok("R k ok #77"));
        assert_eq!(names.fill("A #- 1 #1").as_deref(), Ok("A #- 1 #7"));
        assert!(matches("A #- #1", "A #- #7", names));
        assert!(names.fill("R k ok #5").is_err());
        assert_eq!(names.normal("A k #8.3"), "A k #2.3");
    }

    #[test]
    fn an_id_is_the_same_everywhere() {
        let names = &mut Names::default();
        let (one, two) = (
            "0123456789abcdef0123456789abcdef",
            "f123456789abcdef0123456789abcdef",
        );
        assert!(!matches("H 1 id=<id>", "H 1 id=12", names));
        assert!(matches("H 1 id=<id>", &format!("H 1 id={one}"), names));
        assert!(matches("H 1 id=<id>", &format!("H 1 id={one}"), names));
        assert!(!matches("H 1 id=<id>", &format!("H 1 id={two}"), names));
        assert_eq!(names.normal(&format!("H 1 id={one}")), "H 1 id=<id>");
    }
}
