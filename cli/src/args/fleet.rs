//! Which servers to use, and the settings that all their clients agree on. They come from the command line, the
//! environment, or a file. The settings are those of the library's table.

use std::{
    cell::OnceCell,
    path::{self, Path, PathBuf},
    process::Command,
    time::Duration,
};

use clap::{Arg, ArgAction, ArgMatches, ValueHint, builder::ValueParser, error::ErrorKind};
use quorate::{
    Builder, Error, Quorum,
    cli::{CONFIG, Kind, NODES, NODES_FILE, Options, SET_NODES, SETTINGS, Setting, Variables},
};

use super::config::{ConfigFile, again_at};
use crate::failure::Failure;

const HEADING: &str = "Servers";
const NODE: &str = "node";
const NODE_HELP: &str = "A server: redis://[user:password@]host[:port], rediss://.. (TLS) or unix:///path. Repeat it \
    for every server. All clients must name the same servers. Default: those in QUORATE_NODES, or in --config";
const FILE: &str = "config";
const FILE_HELP: &str = "A file (TOML) with the servers and the settings below: nodes = [\"redis://..\", ..], \
    max_ttl = \"10m\". Options and variables replace its values [default: the file in QUORATE_CONFIG]";
/// Settings that also apply to Consul. All others are about masters.
const ALSO_OF_CONSUL: [&str; 3] = ["connect_timeout", "label", "node_timeout"];
/// A certificate and its key, and the two sources of a password.
const OF_PAIRS: [&str; 4] = [
    "client_cert",
    "client_key",
    "password_command",
    "password_file",
];

/// Which servers to use, and the settings that all their clients agree on.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    /// The servers of the command line. Those of variables and of the file are looked up when they are needed.
    nodes: Vec<String>,
    /// All servers, once they were needed. A pipe can be read only once.
    found: OnceCell<Vec<String>>,
    options: Options,
    /// The file that the command line names.
    path: Option<PathBuf>,
    file: Option<ConfigFile>,
}

/// The settings that the command line offers.
fn offered() -> impl Iterator<Item = &'static Setting> {
    SETTINGS
        .iter()
        .filter(|setting| !setting.variable.is_empty())
}

/// The name of the setting's option: `max_ttl` becomes `max-ttl`.
fn option(setting: &Setting) -> String {
    setting.name.replace('_', "-")
}

fn argument(setting: &'static Setting) -> Arg {
    let help = match setting.default() {
        Some(default) => format!("{} [default: {default}]", setting.help),
        None => setting.help.to_owned(),
    };
    let argument = Arg::new(setting.name)
        .long(option(setting))
        .help(help)
        .global(true)
        .help_heading(HEADING);
    let value = match setting.kind {
        Kind::Flag => return argument.action(ArgAction::SetTrue),
        Kind::Duration => "DURATION",
        Kind::File => "FILE",
        Kind::Word => "TEXT",
    };
    let check = |text: &str| {
        let read = setting.read(&mut Options::default(), text);
        read.map(|()| text.to_owned())
    };
    argument
        .value_name(value)
        .allow_hyphen_values(setting.kind == Kind::Duration)
        .value_parser(check)
}

impl clap::Args for Fleet {
    fn augment_args(command: clap::Command) -> clap::Command {
        let node = Arg::new(NODE)
            .long(NODE)
            .value_name("URL")
            .help(NODE_HELP)
            .action(ArgAction::Append)
            .global(true)
            .help_heading(HEADING);
        let file = Arg::new(FILE)
            .long(FILE)
            .value_name("FILE")
            .help(FILE_HELP)
            .value_parser(ValueParser::path_buf())
            .value_hint(ValueHint::FilePath)
            .global(true)
            .help_heading(HEADING);
        command.args([node, file]).args(offered().map(argument))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Fleet {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut fleet = Self::default();
        fleet.update_from_arg_matches(matches)?;
        Ok(fleet)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let nodes = matches.get_many::<String>(NODE);
        self.nodes = nodes.into_iter().flatten().cloned().collect();
        self.path = matches.get_one::<PathBuf>(FILE).cloned();
        for setting in offered() {
            let text = match setting.kind {
                Kind::Flag => matches.get_flag(setting.name).then_some("1"),
                _ => matches.get_one::<String>(setting.name).map(String::as_str),
            };
            let read = text.map_or(Ok(()), |text| setting.read(&mut self.options, text));
            read.map_err(|why| clap::Error::raw(ErrorKind::ValueValidation, why))?;
        }
        Ok(())
    }
}

impl Fleet {
    /// Takes from the environment what was not given on the command line, and from the configuration file what neither
    /// gives, except for the servers.
    pub(crate) fn fill(&mut self) -> Result<(), Failure> {
        let variables = Variables::of_this_process();
        variables.fill(&mut self.options).map_err(usage)?;
        self.read_file(&variables)?;
        if let Some(file) = &self.file {
            self.options = std::mem::take(&mut self.options).or(file.config.options());
        }
        Ok(())
    }

    /// Another process has put all settings into this one's environment, because a pipe can be read only once.
    pub(super) fn take_from_environment(&mut self) {
        self.path = None;
    }

    fn read_file(&mut self, variables: &Variables) -> Result<(), Failure> {
        let (path, named_by) = match &self.path {
            Some(path) => (Some(path.clone()), "--config"),
            None => (
                variables.word(CONFIG).map_err(usage)?.map(PathBuf::from),
                CONFIG,
            ),
        };
        let read = path.map(|path| ConfigFile::read(&path, named_by));
        self.file = read.transpose().map_err(Failure::usage)?;
        Ok(())
    }

    /// Refuses options about masters beside `--consul`. Variables about masters and those in a configuration file are
    /// allowed and ignored, because they may be settings of the whole machine.
    pub(super) fn fill_beside_consul(&mut self) -> Result<(), Failure> {
        let of_masters = |setting: &&Setting| !ALSO_OF_CONSUL.contains(&setting.name);
        let mut given = offered().filter(of_masters);
        let given = given.find(|setting| setting.show(&self.options).is_some());
        let given = match self.nodes.is_empty() {
            true => given.map(option),
            false => Some(NODE.to_owned()),
        };
        if let Some(option) = given {
            return Err(Failure::usage(format!(
                "--consul cannot be used with --{option}, which is about Redis or Valkey masters: leave one of them out"
            )));
        }
        let variables = Variables::of_this_process();
        let label = offered().find(|setting| setting.name == "label");
        if let Some(label) = label.filter(|_| self.options.label.is_none()) {
            variables
                .fill_one(label, &mut self.options)
                .map_err(usage)?;
        }
        self.read_file(&variables)?;
        if let (None, Some(file)) = (&self.options.label, &self.file) {
            self.options.label.clone_from(&file.config.label);
        }
        Ok(())
    }

    /// Sets the environment of a command so that `quorate` finds the same settings there, except for the label. The
    /// servers in a configuration file stay in the file, if it can be read again.
    pub(crate) fn set_environment(&self, command: &mut Command) {
        let file = self.file.as_ref();
        let again = file.and_then(ConfigFile::again);
        let mut nodes = &self.nodes;
        let file_is_piped = file.is_some() && again.is_none();
        if file_is_piped {
            command.env_remove(CONFIG);
        }
        // A list of servers comes before the file.
        let list = Variables::of_this_process().word(NODES_FILE).ok().flatten();
        let in_a_pipe = match list {
            Some(list) => again_at(Path::new(&list)).is_none(),
            None => file_is_piped,
        };
        if let (true, true, Some(found)) = (nodes.is_empty(), in_a_pipe, self.found.get()) {
            nodes = found;
        }
        if !nodes.is_empty() {
            command.env_remove(NODES_FILE);
        }
        // Of two settings that belong together, or replace each other, the variable of one may be inherited.
        for setting in offered().filter(|setting| OF_PAIRS.contains(&setting.name)) {
            command.env_remove(setting.variable);
        }
        command.envs(again.map(|path| (CONFIG, path)));
        command.envs(self.environment(nodes));
    }

    /// Sets the label in the environment of a process of this command.
    pub(crate) fn set_label(&self, command: &mut Command) {
        command.envs(self.given_label().map(|label| ("QUORATE_LABEL", label)));
    }

    fn environment(&self, nodes: &[String]) -> Vec<(&'static str, String)> {
        // A comma separates the URLs, and a password may contain one.
        let nodes: Vec<String> = nodes.iter().map(|url| url.replace(',', "%2C")).collect();
        let nodes = (!nodes.is_empty()).then(|| (NODES, nodes.join(",")));
        let settings = offered()
            .filter(|setting| setting.name != "label")
            .filter_map(|setting| {
                let value = setting.show(&self.options)?;
                // The command may run in another directory.
                let absolute = (setting.kind == Kind::File).then(|| path::absolute(&value));
                let absolute =
                    absolute.and_then(|path| path.ok()?.into_os_string().into_string().ok());
                Some((setting.variable, absolute.unwrap_or(value)))
            });
        nodes.into_iter().chain(settings).collect()
    }

    /// A builder with all settings that were given on the command line, in the environment or in the file.
    pub(crate) fn builder(&self) -> Result<Builder, Failure> {
        let builder = Quorum::builder().nodes(self.nodes()?);
        // The shutdown only sends releases, on connections that are open. A node that does not answer in this time
        // would not answer in the default of 5 s either.
        let shutdown_timeout = self.options.shutdown_timeout;
        let shutdown_timeout =
            shutdown_timeout.unwrap_or_else(|| self.node_timeout().saturating_mul(2));
        Ok(builder
            .options(self.options.clone())
            .shutdown_timeout(shutdown_timeout))
    }

    /// The servers that were named on the command line, in the environment, or in a configuration file.
    pub(crate) fn nodes(&self) -> Result<Vec<String>, Failure> {
        if let Some(found) = self.found.get() {
            return Ok(found.clone());
        }
        let found = self.find_nodes()?;
        Ok(self.found.get_or_init(|| found).clone())
    }

    fn find_nodes(&self) -> Result<Vec<String>, Failure> {
        if !self.nodes.is_empty() {
            return Ok(self.nodes.clone());
        }
        let variables = Variables::of_this_process();
        if let (nodes, Some(_)) = variables.nodes().map_err(usage)? {
            return Ok(nodes);
        }
        let file = self.file.as_ref();
        match file.map(|file| &file.config.nodes) {
            Some(nodes) if !nodes.is_empty() => Ok(nodes.clone()),
            _ => {
                let file =
                    file.map(|file| format!(". The file {:?} has no nodes = [..]", file.path));
                Err(Failure::usage(format!(
                    "no servers are named: give --node URL for each of them or a --config FILE, or {SET_NODES}. \
                     `quorate demo` needs none{}{}",
                    file.unwrap_or_default(),
                    variables.hint()
                )))
            }
        }
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        self.options.connect_timeout()
    }

    pub(crate) fn node_timeout(&self) -> Duration {
        self.options.node_timeout()
    }

    /// How long one answer may take: the setting, or `default` where it was not given.
    pub(crate) fn answer_within(&self, default: Duration) -> Duration {
        self.options.node_timeout.unwrap_or(default)
    }

    pub(crate) fn prefix(&self) -> &str {
        self.options.prefix()
    }

    pub(crate) fn given_label(&self) -> Option<&str> {
        self.options.label.as_deref()
    }

    /// The label that was given, or a default like the library's own.
    pub(crate) fn label(&self) -> String {
        let given = self.options.label.clone();
        given.unwrap_or_else(|| format!("torture:{}", std::process::id()))
    }

    pub(crate) fn max_ttl(&self) -> Duration {
        self.options.max_ttl()
    }
}

fn usage(error: Error) -> Failure {
    Failure::usage(error.to_string())
}
