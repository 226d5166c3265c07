//! `quorate completions` and `quorate man`: files for shells and for `man`, made from the command line's definition.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_mangen::Man;
use serde_json::json;

use crate::{
    args::Args,
    failure::{Failure, SOFTWARE},
    output,
};

/// Prints the completions of a shell.
pub(crate) fn completions(shell: Shell) -> u8 {
    output::say(script(shell).trim_end());
    0
}

fn script(shell: Shell) -> String {
    let mut bytes = Vec::new();
    let mut command = Args::command();
    clap_complete::generate(shell, &mut command, "quorate", &mut bytes);
    with_commands(shell, &String::from_utf8_lossy(&bytes))
}

/// Adds what clap's script lacks: the words after `--` are a command line of their own, and no options of quorate.
fn with_commands(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => script.replacen(BASH_CASES, &format!("{BASH}{BASH_CASES}"), 1),
        Shell::Zsh => script.replacen(ZSH_START, &format!("{ZSH_START}{ZSH}"), 1),
        Shell::Fish => format!("{script}{FISH}"),
        _ => script.to_owned(),
    }
}

/// Before this line bash knows no words to offer yet.
const BASH_CASES: &str = "    case \"${cmd}\" in\n";
/// `_command_offset` is a function of the package bash-completion. If nothing is offered, bash offers files.
const BASH: &str = "    for ((i = 2; i < COMP_CWORD; i++)); do
        if [[ \"${COMP_WORDS[i]}\" == -- ]]; then
            if declare -F _command_offset >/dev/null; then
                _command_offset $((i + 1))
            elif [[ $((i + 1)) -eq ${COMP_CWORD} && \"${cur}\" != */* ]]; then
                COMPREPLY=( $(compgen -c -- \"${cur}\") )
            fi
            return 0
        fi
    done

";
const ZSH_START: &str = "_quorate() {\n";
const ZSH: &str = "    local -i dashes=${words[(i)--]}
    if (( dashes < CURRENT )); then
        shift $dashes words
        (( CURRENT -= dashes ))
        _normal
        return
    fi
";
const FISH: &str = "function __fish_quorate_after_dashes
    set -l words (commandline -opc)
    set -l dashes (contains -i -- -- $words); or return 1
    set -l rest (string escape -- $words[(math $dashes + 1)..-1]) (commandline -ct)
    complete \"-C$rest\"
end
complete -c quorate -n \"contains -- -- (commandline -opc)\" -f -a \"(__fish_quorate_after_dashes)\"
";

/// Writes a page for each command into the directory.
pub(crate) fn man(args: &Args, dir: &Path) -> Result<u8, Failure> {
    let cannot = |path: &Path, error: &io::Error| {
        let text = format!("cannot write {}: {error}", path.display());
        Failure::new(SOFTWARE, "cannot_write", text)
    };
    fs::create_dir_all(dir).map_err(|error| cannot(dir, &error))?;
    let pages = pages().map_err(|error| cannot(dir, &error))?;
    for (name, page) in &pages {
        let path = dir.join(name);
        fs::write(&path, page).map_err(|error| cannot(&path, &error))?;
    }
    let count = pages.len();
    output::say(&match args.json {
        true => json!({"pages": count, "directory": dir}).to_string(),
        false => format!("wrote {count} pages to {}", dir.display()),
    });
    Ok(0)
}

/// Each page, and the name of its file.
fn pages() -> io::Result<Vec<(PathBuf, String)>> {
    let mut command = Args::command().disable_help_subcommand(true);
    // Only then subcommands have their full names, and the options of all commands.
    command.build();
    let mut pages = Vec::new();
    let mut rest = vec![command];
    while let Some(command) = rest.pop() {
        rest.extend(command.get_subcommands().cloned());
        let man = Man::new(command).source(concat!("quorate ", env!("CARGO_PKG_VERSION")));
        let mut page = Vec::new();
        man.render(&mut page)?;
        let page = with_lines_kept(&String::from_utf8_lossy(&page));
        pages.push((PathBuf::from(man.get_filename()), page));
    }
    Ok(pages)
}

/// `man` would join the lines of a text to one paragraph. In the help each line is a paragraph, or a row of a table.
/// Rows also need blanks that are not stretched.
fn with_lines_kept(page: &str) -> String {
    let mut kept = String::new();
    let mut is_help = false;
    let mut was_text = false;
    for line in page.lines() {
        let is_text = !line.starts_with('.');
        if let Some(section) = line.strip_prefix(".SH ") {
            is_help = matches!(section, "DESCRIPTION" | "EXTRA");
        }
        if is_help && was_text && is_text {
            kept.push_str(".br\n");
        }
        kept.push_str(line);
        kept.push('\n');
        if line.starts_with(".TH ") {
            kept.push_str(".ad l\n");
        }
        was_text = is_text;
    }
    kept
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        process::{Command, Stdio},
    };

    use clap::ValueEnum as _;

    use super::*;

    /// All commands, by the names of their pages without the end.
    fn commands() -> BTreeMap<String, clap::Command> {
        let mut command = Args::command().disable_help_subcommand(true);
        command.build();
        let mut all = BTreeMap::new();
        let mut rest = vec![command];
        while let Some(command) = rest.pop() {
            rest.extend(command.get_subcommands().cloned());
            let name = command.get_display_name().unwrap_or("quorate").to_owned();
            all.insert(name, command);
        }
        all
    }

    fn longs(command: &clap::Command) -> impl Iterator<Item = &str> {
        let shown = command.get_arguments().filter(|it| !it.is_hide_set());
        shown.filter_map(clap::Arg::get_long)
    }

    #[test]
    fn every_command_has_a_page_that_names_all_its_options() {
        let commands = commands();
        let pages = pages().unwrap();
        assert_eq!(pages.len(), commands.len());
        assert!(
            commands.contains_key("quorate-torture-look"),
            "{commands:?}"
        );
        let mut seen = 0;
        for (file, page) in pages {
            let file = file.to_str().unwrap();
            let command = &commands[file.strip_suffix(".1").unwrap()];
            assert!(page.contains(".TH "), "{file}");
            assert!(page.contains(".SH NAME\n"), "{file}");
            let plain = page.replace("\\-", "-");
            for long in longs(command) {
                seen += 1;
                assert!(plain.contains(&format!("--{long}")), "{file}: --{long}");
            }
            for inner in command.get_subcommands() {
                assert!(plain.contains(inner.get_name()), "{file}");
            }
        }
        assert!(seen > 200, "{seen}");
    }

    #[test]
    fn lines_of_the_help_stay_lines_and_options_stay_as_they_are() {
        let page = ".TH a 1\n.SH DESCRIPTION\none\n  row\ntwo\n.PP\nthree\n.SH OPTIONS\n.TP\n-a\nmeans a\n";
        assert_eq!(
            with_lines_kept(page),
            ".TH a 1\n.ad l\n.SH DESCRIPTION\none\n.br\n  row\n.br\ntwo\n.PP\nthree\n\
             .SH OPTIONS\n.TP\n-a\nmeans a\n"
        );
        let (_, page) = pages()
            .unwrap()
            .into_iter()
            .find(|(file, _)| file == Path::new("quorate.1"))
            .unwrap();
        assert!(
            page.contains("79    the lock was lost while the command ran\n.br\n`lock`"),
            "{page}"
        );
    }

    #[test]
    fn groff_reads_every_page_without_a_warning() {
        for (file, page) in pages().unwrap() {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join(&file);
            fs::write(&path, page).unwrap();
            let mut groff = Command::new("groff");
            let groff = groff.args(["-man", "-Tutf8", "-ww", "-z"]).arg(&path);
            match groff.output() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    eprintln!("NOT RUN: groff is not installed");
                    return;
                }
                done => {
                    let said = String::from_utf8(done.unwrap().stderr).unwrap();
                    assert_eq!(said, "", "{}", file.display());
                }
            }
        }
    }

    #[test]
    fn the_script_of_each_shell_has_every_command_and_option() {
        for shell in Shell::value_variants() {
            let script = script(*shell);
            let mut seen = 0;
            for (name, command) in commands() {
                let word = command.get_name();
                assert!(script.contains(word), "{shell}: {name}");
                for long in longs(&command) {
                    seen += 1;
                    let option = match shell {
                        Shell::Fish => format!("-l {long}"),
                        _ => format!("--{long}"),
                    };
                    assert!(script.contains(&option), "{shell}: {name}: {option}");
                }
            }
            assert!(seen > 200, "{seen}");
        }
    }

    /// The words that bash offers in place of the last one.
    fn offered(words: &[&str]) -> Vec<String> {
        offered_beside("", words)
    }

    /// The same beside other functions for completions.
    fn offered_beside(others: &str, words: &[&str]) -> Vec<String> {
        let mut bash = Command::new("bash");
        let line = "source \"$1\"; shift; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMP_LINE=\"$*\"; \
            _quorate quorate \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD - 1]}\"; \
            printf '%s\\n' \"${COMPREPLY[@]}\"";
        let line = format!("{others}\n{line}");
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), script(Shell::Bash)).unwrap();
        let bash = bash
            .args(["-c", &line, "bash"])
            .arg(file.path())
            .args(words);
        let done = bash.stdin(Stdio::null()).output().unwrap();
        let errors = String::from_utf8(done.stderr).unwrap();
        // Outside of a real completion bash has no options to set.
        let errors: Vec<&str> = errors
            .lines()
            .filter(|it| !it.contains("compopt"))
            .collect();
        assert_eq!(errors, Vec::<&str>::new());
        let said = String::from_utf8(done.stdout).unwrap();
        said.lines().map(str::to_owned).collect()
    }

    #[test]
    fn bash_completes_commands_options_and_values() {
        let begun = |word: &str| format!("--{word}");
        assert_eq!(offered(&["quorate", "sem"]), ["semaphore"]);
        assert_eq!(
            offered(&["quorate", "lock", &begun("keep")]),
            ["--keep-env"]
        );
        assert_eq!(offered(&["quorate", "nodes", &begun("conf")]), ["--config"]);
        assert_eq!(offered(&["quorate", "nodes", "--wait", "m"]), ["majority"]);
        assert_eq!(offered(&["quorate", "completions", "z"]), ["zsh"]);
    }

    #[test]
    fn after_the_dashes_bash_completes_a_command_and_its_files() {
        for before in [
            &["quorate", "lock", "a", "--"][..],
            &["quorate", "limit", "a", "--rate", "1/s", "--"],
        ] {
            let with = |words: &[&str]| offered(&[before, words].concat());
            assert!(with(&["ca"]).contains(&"cat".to_owned()), "{before:?}");
            // Bash itself offers files when a script offers nothing.
            for words in [&["--"][..], &["./ca"], &["ls", "--"], &["ls", "ca"]] {
                assert_eq!(with(words), [""], "{before:?} {words:?}");
            }
        }
    }

    /// The package bash-completion knows the options of other commands.
    #[test]
    fn after_the_dashes_the_command_completes_its_own_words() {
        let words = ["quorate", "lock", "a", "--", "ls", "--save"];
        let others = "_command_offset() { COMPREPLY=(\"from $1\"); }";
        assert_eq!(offered_beside(others, &words), ["from 4"]);
        // No shell but bash is sure to be here.
        for (shell, line) in [
            (Shell::Zsh, "_quorate() {\n    local -i dashes"),
            (
                Shell::Fish,
                "\ncomplete -c quorate -n \"contains -- -- (comm",
            ),
        ] {
            assert!(script(shell).contains(line), "{shell}");
        }
    }

    #[test]
    fn no_script_has_a_hidden_option() {
        let commands = commands();
        let arguments = commands.values().flat_map(clap::Command::get_arguments);
        let hidden: Vec<_> = arguments.filter(|it| it.is_hide_set()).collect();
        // clap_complete offers hidden options too.
        assert!(hidden.is_empty(), "{hidden:?}");
        assert!(!script(Shell::Bash).contains("worker"));
    }
}
