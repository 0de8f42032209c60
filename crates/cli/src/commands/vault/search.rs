//! `agentiso vault search`: searches the notes line by line.

use std::process::ExitCode;

use agentiso_vault::{FolderPath, Hit, MAX_HITS, Pattern, Query, Tag};

use super::{failed, open, parsed};
use crate::context::Context;
use crate::failure::Failure;
use crate::output;

/// Search the notes, line by line
///
/// Prints path, line number and text of matching lines. The search is case-sensitive. Exits with 1 if nothing matches.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso vault search TODO
  agentiso vault search --regex 'v[0-9]+\\.[0-9]+' --prefix releases
  agentiso vault search deploy --tag web --json | jq -r '.[].path' | sort -u")]
pub(crate) struct Arguments {
    /// Text to search for
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    query: String,
    /// Treat the query as a regular expression
    #[arg(long)]
    regex: bool,
    /// Search only this folder, or notes whose path begins with this
    #[arg(long, value_name = "PATH")]
    prefix: Option<String>,
    /// Search only notes with this tag
    #[arg(long)]
    tag: Option<String>,
    /// Show at most this many matches
    #[arg(long, value_name = "COUNT", default_value_t = MAX_HITS)]
    max: usize,
    /// Print JSON, with the lines around each match
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let pattern = match arguments.regex {
        true => Pattern::expression(&arguments.query).map_err(failed)?,
        false => Pattern::plain(&arguments.query),
    };
    let tag = arguments.tag.as_deref().map(Tag::parse).transpose();
    let prefix = arguments.prefix.as_deref().unwrap_or_default();
    let query = Query {
        pattern,
        prefix: parsed(prefix, FolderPath::parse(prefix))?,
        tag: tag.map_err(|problem| Failure::usage(problem.to_string()))?,
        max_hits: arguments.max,
    };
    let found = open(context)?.search(&query).map_err(failed)?;
    if arguments.json {
        output::json(&found.hits)?;
    } else if !found.hits.is_empty() {
        output::line(&found.hits.iter().map(render).collect::<Vec<_>>().join("\n"))?;
    }
    if !found.complete {
        return Err(Failure::new("timed out before all notes were searched"));
    }
    Ok(if found.total == 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn render(hit: &Hit) -> String {
    output::one_line(&format!("{}:{}: {}", hit.path, hit.line_number, hit.line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vault_hit_escapes_control_characters() {
        let (line, context) = ("a\x1b[31mb".to_owned(), String::new());
        let hit = Hit { path: "n.md".to_owned(), line_number: 3, line, context };
        assert_eq!(render(&hit), "n.md:3: a\\u{1b}[31mb");
    }
}
