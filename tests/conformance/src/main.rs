//! One list of scenarios against a scripted server, run through every language: what the server sees
//! and what the caller gets must be what the play says, line by line, and so the same in all.
//!
//! ```text
//! scenarios/*.play ──▶ perform ──▶ stage (the server) ⇄ client under test
//!                         └──────▶ driver (a program in one language) ──┘
//! ```

mod driver;
mod machine;
mod pattern;
mod perform;
mod report;
mod scenario;
mod stage;

use clap::Parser;
use driver::Driver;
use machine::Machine;
use perform::{Outcome, perform};
use scenario::Scenario;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Every language that has a driver.
const LANGUAGES: [&str; 5] = ["rust", "python", "python-asyncio", "node", "c"];

/// How often a play that proves nothing is played again.
const TRIES_ALONE: usize = 2;

/// Runs the conformance scenarios.
#[derive(Parser)]
struct Arguments {
    /// How a language's driver is started: `rust=PROGRAM ARGUMENT…`. Languages without one are a failure.
    #[arg(long = "driver", value_name = "LANGUAGE=COMMAND")]
    drivers: Vec<String>,
    /// Leave this language out.
    #[arg(long, value_name = "LANGUAGE", value_parser = LANGUAGES)]
    without: Vec<String>,
    /// Run this language only.
    #[arg(long, value_name = "LANGUAGE", value_parser = LANGUAGES)]
    only: Vec<String>,
    /// Run the scenarios with this in their name or rule.
    #[arg(long, default_value = "")]
    scenario: String,
    /// Where the scenarios are.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios"))]
    folder: PathBuf,
    /// How many scenarios run at a time.
    #[arg(long, default_value_t = 24)]
    jobs: usize,
    /// A driver of its own for each scenario.
    #[arg(long)]
    isolated: bool,
    /// How much later than told something may come, in milliseconds.
    #[arg(long, default_value_t = 200)]
    slack_ms: u64,
    /// Show what was seen in every scenario.
    #[arg(long, short)]
    verbose: bool,
    /// Only name the scenarios and the rules they prove.
    #[arg(long)]
    list: bool,
}

/// One scenario in one language, and what became of it.
struct Run<'a> {
    scenario: &'a Scenario,
    language: &'a str,
    outcome: Option<Outcome>,
    /// It went wrong while the machine was busy elsewhere.
    inconclusive: bool,
}

impl Run<'_> {
    fn play(&mut self, troupe: &Troupe) {
        let begin = Instant::now();
        let outcome = troupe.play(self.scenario, self.language);
        // What came late may have waited for the machine even if this process has not.
        self.inconclusive = outcome
            .failure
            .as_ref()
            .is_some_and(|failure| failure.late || troupe.machine.was_busy_since(begin));
        self.outcome = Some(outcome);
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("conformance: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool, String> {
    let mut scenarios = read_scenarios(&arguments.folder)?;
    scenarios.retain(|scenario| {
        scenario.name.contains(&arguments.scenario) || scenario.rule.contains(&arguments.scenario)
    });
    if arguments.list {
        report::list(&scenarios);
        return Ok(true);
    }
    let languages: Vec<&str> = LANGUAGES
        .into_iter()
        .filter(|name| arguments.only.is_empty() || arguments.only.iter().any(|only| only == name))
        .filter(|name| !arguments.without.iter().any(|without| without == name))
        .collect();
    let troupe = Troupe::new(arguments, &languages)?;
    let begin = Instant::now();
    let mut runs: Vec<Run<'_>> = scenarios
        .iter()
        .flat_map(|scenario| {
            let plays_in =
                |language: &&&str| !scenario.except.iter().any(|name| name == **language);
            languages.iter().filter(plays_in).map(move |language| Run {
                scenario,
                language,
                outcome: None,
                inconclusive: false,
            })
        })
        .collect();
    runs.sort_by_key(|run| std::cmp::Reverse(run.scenario.length));
    play_all(&mut runs, &troupe, arguments.jobs);
    play_again(&mut runs, &troupe);
    Ok(report::all(
        &scenarios,
        &languages,
        &runs,
        arguments.verbose,
        begin.elapsed(),
    ))
}

/// Plays alone what went wrong while the machine was busy elsewhere. What goes wrong alone too is not the machine's
/// fault in the other languages either.
fn play_again(runs: &mut [Run<'_>], troupe: &Troupe) {
    let mut certain: Vec<&str> = Vec::new();
    for run in runs {
        let name = run.scenario.name.as_str();
        for _ in 0..TRIES_ALONE {
            if run.inconclusive && !certain.contains(&name) {
                println!(
                    "{name} in {}: the machine was busy; once more, alone",
                    run.language
                );
                run.play(troupe);
            }
        }
        if run
            .outcome
            .as_ref()
            .is_some_and(|outcome| outcome.failure.is_some())
        {
            certain.push(name);
        }
    }
}

fn read_scenarios(folder: &Path) -> Result<Vec<Scenario>, String> {
    let fault = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .map_err(fault)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .map_err(fault)?;
    files.retain(|file| {
        file.extension()
            .is_some_and(|extension| extension == "play")
    });
    files.sort();
    let mut scenarios = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).map_err(fault)?;
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        scenarios.extend(scenario::parse(&name, &text)?);
    }
    let mut names: Vec<&str> = scenarios
        .iter()
        .map(|scenario| scenario.name.as_str())
        .collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("two scenarios are called {}", pair[0])),
        None => Ok(scenarios),
    }
}

/// The drivers, one a language, started when they are first needed and again if one has ended.
struct Troupe {
    commands: HashMap<String, Vec<String>>,
    running: Mutex<HashMap<String, Arc<Driver>>>,
    next_play: AtomicU64,
    isolated: bool,
    slack: Duration,
    machine: &'static Machine,
}

impl Troupe {
    fn new(arguments: &Arguments, languages: &[&str]) -> Result<Troupe, String> {
        let mut commands = HashMap::new();
        for driver in &arguments.drivers {
            let (language, command) = driver
                .split_once('=')
                .ok_or_else(|| format!("--driver {driver} has no ="))?;
            let words = command.split_whitespace().map(str::to_owned).collect();
            commands.insert(language.to_owned(), words);
        }
        if let Some(missing) = languages.iter().find(|name| !commands.contains_key(**name)) {
            return Err(format!(
                "no driver for {missing}: build its binding, or leave it out with --without {missing}"
            ));
        }
        Ok(Troupe {
            commands,
            running: Mutex::default(),
            next_play: AtomicU64::new(1),
            isolated: arguments.isolated,
            slack: Duration::from_millis(arguments.slack_ms),
            machine: Machine::watch(),
        })
    }

    fn play(&self, scenario: &Scenario, language: &str) -> Outcome {
        let play = self.next_play.fetch_add(1, Ordering::Relaxed);
        match self.driver(scenario, language) {
            Ok(driver) => perform(scenario, &*driver, play, self.slack),
            Err(why) => Outcome {
                trace: Vec::new(),
                failure: Some(perform::Failure {
                    step: 0,
                    why,
                    late: false,
                }),
                log: Vec::new(),
            },
        }
    }

    fn driver(&self, scenario: &Scenario, language: &str) -> Result<Arc<Driver>, String> {
        let command = &self.commands[language];
        // A blocking call of Python is given up by Ctrl+C, which only a main thread hears.
        if self.isolated || (language == "python" && scenario.interrupts()) {
            return Driver::start(command).map(Arc::new);
        }
        let mut running = self.running.lock().expect("no holder panics");
        if let Some(driver) = running.get(language)
            && driver.lives()
        {
            return Ok(driver.clone());
        }
        let driver = Arc::new(Driver::start(command)?);
        running.insert(language.to_owned(), driver.clone());
        Ok(driver)
    }
}

fn play_all(runs: &mut [Run<'_>], troupe: &Troupe, jobs: usize) {
    let next = AtomicUsize::new(0);
    let slots: Vec<Mutex<&mut Run<'_>>> = runs.iter_mut().map(Mutex::new).collect();
    thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some(slot) = slots.get(next.fetch_add(1, Ordering::Relaxed)) {
                    slot.lock().expect("each slot has one worker").play(troupe);
                }
            });
        }
    });
}
