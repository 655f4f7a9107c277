//! Reads `scenarios/*.play`: text → steps. A line that it does not know is an error that names its place.

use super::{Action, Connection, Cut, Scenario, Step, Window};
use crate::pattern::Pattern;
use std::collections::BTreeSet;
use std::time::Duration;

/// Reads a file of scenarios.
pub(crate) fn parse(file: &str, text: &str) -> Result<Vec<Scenario>, String> {
    let mut scenarios: Vec<Scenario> = Vec::new();
    for (index, raw) in text.lines().enumerate() {
        let line = raw.trim_end();
        let number = index + 1;
        let fault = |text: String| format!("{file}:{number}: {text}");
        let content = line.trim_start();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        if let Some(name) = content.strip_prefix("== ") {
            scenarios.push(Scenario {
                name: name.trim().to_owned(),
                rule: String::new(),
                except: Vec::new(),
                steps: Vec::new(),
                length: Duration::ZERO,
            });
            continue;
        }
        let scenario = scenarios
            .last_mut()
            .ok_or_else(|| fault("a step before the first `== name`".to_owned()))?;
        if let Some(rule) = content.strip_prefix("rule ") {
            rule.trim().clone_into(&mut scenario.rule);
            continue;
        }
        if let Some(except) = content.strip_prefix("except ") {
            // Behind a colon stands the reason, for people.
            let (languages, _) = except
                .split_once(':')
                .ok_or_else(|| fault("except needs a reason".to_owned()))?;
            scenario
                .except
                .extend(languages.split_whitespace().map(str::to_owned));
            continue;
        }
        scenario.steps.push(step(number, content).map_err(fault)?);
    }
    for scenario in &mut scenarios {
        if scenario.rule.is_empty() {
            return Err(format!("{file}: {} names no rule", scenario.name));
        }
        scenario.length = scenario.steps.iter().map(shortest).sum();
        mark_interrupted(&mut scenario.steps);
    }
    Ok(scenarios)
}

fn shortest(step: &Step) -> Duration {
    let own = match step.action {
        Action::Quiet { time } | Action::Pause { time } | Action::NoConnect { time, .. } => time,
        _ => Duration::ZERO,
    };
    own.max(step.when.map_or(Duration::ZERO, |window| window.from))
}

/// A driver may have to begin an operation differently if it is to be ended from outside.
fn mark_interrupted(steps: &mut [Step]) {
    let mut cancelled = BTreeSet::new();
    let mut closes = false;
    for step in &*steps {
        match &step.action {
            Action::Do { op, verb, .. } if verb == "cancel" => {
                cancelled.insert(op.clone());
            }
            Action::Do { verb, .. } => closes |= verb == "close",
            _ => {}
        }
    }
    for step in steps {
        if let Action::Do {
            op,
            verb,
            interrupted_later,
            ..
        } = &mut step.action
        {
            *interrupted_later = cancelled.contains(op) || (closes && verb == "acquire");
        }
    }
}

fn step(line: usize, content: &str) -> Result<Step, String> {
    let (when, since, rest) = match content.strip_prefix('+') {
        Some(timed) => {
            let (time, rest) = timed
                .split_once(' ')
                .ok_or("a time and nothing behind it")?;
            let (time, mark) = match time.split_once('@') {
                Some((time, mark)) => (time, Some(mark.to_owned())),
                None => (time, None),
            };
            (Some(window(time)?), mark, rest.trim_start())
        }
        None => (None, None, content),
    };
    Ok(Step {
        line,
        text: content.to_owned(),
        when,
        since,
        action: action(rest)?,
    })
}

fn action(text: &str) -> Result<Action, String> {
    let (subject, rest) = text.split_once(' ').unwrap_or((text, ""));
    let words: Vec<String> = rest.split_whitespace().map(str::to_owned).collect();
    match subject {
        "node" => {
            let (name, settings) = words.split_first().ok_or("node needs a name")?;
            Ok(Action::Node {
                name: name.clone(),
                settings: settings
                    .iter()
                    .map(|word| word.split_once('=').unwrap_or((word, "")))
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .collect(),
            })
        }
        "client" => {
            let (nodes, options) = words.split_first().ok_or("client needs its servers")?;
            Ok(Action::Open {
                nodes: nodes.split(',').map(str::to_owned).collect(),
                options: options
                    .iter()
                    .filter(|word| *word != "nowait")
                    .cloned()
                    .collect(),
                wait: !options.iter().any(|word| word == "nowait"),
            })
        }
        "do" => match words.as_slice() {
            [op, verb, arguments @ ..] => Ok(Action::Do {
                op: op.clone(),
                verb: verb.clone(),
                arguments: arguments.to_vec(),
                interrupted_later: false,
            }),
            _ => Err("do needs a number and a verb".to_owned()),
        },
        "got" => {
            let (op, answer) = rest.trim().split_once(' ').ok_or("got needs an answer")?;
            Ok(Action::Got {
                op: op.to_owned(),
                pattern: Pattern::parse(answer.trim())?,
            })
        }
        "mark" => Ok(Action::Mark {
            name: rest.trim().to_owned(),
        }),
        "quiet" => Ok(Action::Quiet {
            time: time(rest.trim())?,
        }),
        "pause" => Ok(Action::Pause {
            time: time(rest.trim())?,
        }),
        subject if subject.contains('.') || ["*", "last"].contains(&subject) => {
            of_connection(connection(subject)?, rest)
        }
        node => of_node(node, &words),
    }
}

fn of_node(node: &str, words: &[String]) -> Result<Action, String> {
    let node = node.to_owned();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["connects"] => Ok(Action::Connects { node }),
        ["no", "connect", "for", limit] => Ok(Action::NoConnect {
            node,
            time: time(limit)?,
        }),
        ["accepted", count] => Ok(Action::Accepted {
            node,
            count: count.parse().map_err(|_| "accepted needs a number")?,
        }),
        _ => Err(format!("unknown step: {node} {}", words.join(" "))),
    }
}

fn of_connection(connection: Connection, rest: &str) -> Result<Action, String> {
    let (verb, argument) = rest.split_once(' ').unwrap_or((rest, ""));
    match (verb, argument) {
        ("<" | "<~", line) => Ok(Action::Sees {
            connection,
            anywhere: verb == "<~",
            pattern: Pattern::parse(line.trim())?,
        }),
        (">", line) => Ok(Action::Says {
            connection,
            bytes: format!("{line}\n"),
            pace: None,
        }),
        (">>", line) => Ok(Action::Says {
            connection,
            bytes: unescape(line)?,
            pace: None,
        }),
        ("drip", argument) => {
            let (pace, line) = argument
                .split_once(' ')
                .ok_or("drip needs a pace and a line")?;
            Ok(Action::Says {
                connection,
                bytes: format!("{line}\n"),
                pace: Some(time(pace)?),
            })
        }
        ("ended", "") => Ok(Action::Ended {
            connection,
            reset: false,
        }),
        ("reset", "by client") => Ok(Action::Ended {
            connection,
            reset: true,
        }),
        ("close", "") => Ok(Action::Cut {
            connection,
            how: Cut::Close,
        }),
        ("reset", "") => Ok(Action::Cut {
            connection,
            how: Cut::Reset,
        }),
        ("half-close", "") => Ok(Action::Cut {
            connection,
            how: Cut::HalfClose,
        }),
        _ => Err(format!("unknown step of a connection: {rest}")),
    }
}

fn connection(text: &str) -> Result<Connection, String> {
    if text == "*" {
        return Ok(Connection {
            node: None,
            label: None,
        });
    }
    if text == "last" {
        return Ok(Connection {
            node: None,
            label: Some("last".to_owned()),
        });
    }
    let (node, label) = text.split_once('.').ok_or("a connection is node.name")?;
    Ok(Connection {
        node: Some(node.to_owned()),
        label: (label != "*").then(|| label.to_owned()),
    })
}

/// `200ms`, `3s`, or a window: `2.7s..3.3s`.
fn window(text: &str) -> Result<Window, String> {
    let (from, to) = text.split_once("..").unwrap_or((text, text));
    Ok(Window {
        from: time(from)?,
        to: time(to)?,
    })
}

fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 0.001),
        None => (
            text.strip_suffix('s')
                .ok_or_else(|| format!("not a time: {text}"))?,
            1.0,
        ),
    };
    let number: f64 = number.parse().map_err(|_| format!("not a time: {text}"))?;
    Ok(Duration::from_secs_f64(number * unit))
}

/// `\r`, `\n`, `\\`, `\*9;` (the character before, nine times) and `\xHH`; a byte above 0x7F becomes a private character that [`bytes`] turns back.
fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        if character != '\\' {
            out.push(character);
            continue;
        }
        match rest.next() {
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('\\') => out.push('\\'),
            Some('x') => {
                let digits: String = rest.by_ref().take(2).collect();
                let byte = u8::from_str_radix(&digits, 16).map_err(|_| format!("\\x{digits}"))?;
                let character = if byte < 0x80 {
                    u32::from(byte)
                } else {
                    RAW_BYTE + u32::from(byte)
                };
                out.push(char::from_u32(character).expect("no surrogate is in that range"));
            }
            Some('*') => {
                let digits: String = rest.by_ref().take_while(|digit| *digit != ';').collect();
                let times: usize = digits.parse().map_err(|_| format!("\\*{digits}"))?;
                let last = out.pop().ok_or("nothing to repeat")?;
                out.extend(std::iter::repeat_n(last, times));
            }
            other => return Err(format!("unknown escape \\{}", other.unwrap_or(' '))),
        }
    }
    Ok(out)
}

const RAW_BYTE: u32 = 0xF700;

/// The bytes that a text with escapes stands for.
pub(crate) fn bytes(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for character in text.chars() {
        match u32::from(character).checked_sub(RAW_BYTE) {
            Some(byte @ 0x80..=0xFF) => out.push(byte as u8),
            _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_can_be_said() {
        let text = unescape("é\\xff\\n").expect("the escapes are right");
        assert_eq!(bytes(&text), [0xC3, 0xA9, 0xFF, b'\n']);
        assert_eq!(unescape("ax\\*3;b").as_deref(), Ok("axxxb"));
    }

    #[test]
    fn a_scenario_reads_as_it_is_written() {
        let text = "== release-repeats\nrule 4.6\n# why\nnode a pings=hand\nclient a nowait lease=2\n\
                    do 1 acquire k wait=5\na.x < A k 30 4.5..5 #1\n  a.x > A k 100 #1\n\
                    +200ms got 1 granted k 100\n+2.7s..3.3s a connects\nquiet 1.5s\ndo 1 cancel\n";
        let scenarios = parse("f", text).expect("the text is right");
        assert_eq!(scenarios.len(), 1);
        let scenario = &scenarios[0];
        assert_eq!(
            (scenario.name.as_str(), scenario.rule.as_str()),
            ("release-repeats", "4.6")
        );
        assert_eq!(scenario.steps.len(), 9);
        assert!(scenario.interrupts());
        assert_eq!(scenario.length, Duration::from_millis(200 + 2700 + 1500));
        assert_eq!(
            scenario.steps[6].when,
            Some(Window {
                from: Duration::from_millis(2700),
                to: Duration::from_millis(3300)
            })
        );
        assert!(matches!(
            &scenario.steps[2].action,
            Action::Do {
                interrupted_later: true,
                ..
            }
        ));
        assert!(matches!(
            &scenario.steps[4].action,
            Action::Says { bytes, .. } if bytes == "A k 100 #1\n"
        ));
    }

    #[test]
    fn what_it_does_not_know_is_an_error_with_its_place() {
        for (text, place) in [
            ("do 1 acquire k", "f:1: "),
            ("== a\nrule 1\nb jumps", "f:3: "),
            ("== a\nrule 1\na.x ! z", "f:3: "),
            ("== a\nnode a", "f: a names no rule"),
            ("== a\nrule 1\n+soon quiet 1s", "f:3: "),
            ("== a\nrule 1\na.x >> \\q", "f:3: "),
        ] {
            let error = parse("f", text).expect_err(text);
            assert!(error.starts_with(place), "{error}");
        }
    }
}
