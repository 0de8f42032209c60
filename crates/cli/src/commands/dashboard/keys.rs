//! Reads keys and size changes from the terminal.

use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc::Sender;

use super::state::{Change, Key};

/// The longest time after which the reader notices that the receiver is gone.
const PATIENCE: Duration = Duration::from_millis(250);

/// Reads on a thread, because reading a terminal blocks. The thread ends when the receiver is dropped.
pub(super) fn listen(changes: Sender<Change>) {
    std::thread::spawn(move || {
        while !changes.is_closed() {
            let change = match event::poll(PATIENCE) {
                Ok(false) => continue,
                Ok(true) => match event::read() {
                    Ok(event) => change(&event),
                    Err(_) => Some(Change::Key(Key::Leave)),
                },
                // The terminal is gone.
                Err(_) => Some(Change::Key(Key::Leave)),
            };
            if change.is_some_and(|change| changes.blocking_send(change).is_err()) {
                return;
            }
        }
    });
}

fn change(event: &Event) -> Option<Change> {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => {
            let control = key.modifiers.contains(KeyModifiers::CONTROL);
            meaning(key.code, control).map(Change::Key)
        }
        Event::Resize(..) => Some(Change::Resized),
        Event::Key(_) | Event::FocusGained | Event::FocusLost | Event::Mouse(_) | Event::Paste(_) => None,
    }
}

fn meaning(code: KeyCode, control: bool) -> Option<Key> {
    match (code, control) {
        // In raw mode ctrl-C is a key and not a signal.
        (KeyCode::Char('c'), true) | (KeyCode::Char('q'), false) => Some(Key::Leave),
        (KeyCode::Up | KeyCode::Char('k'), false) => Some(Key::Up),
        (KeyCode::Down | KeyCode::Char('j'), false) => Some(Key::Down),
        (KeyCode::Enter, false) => Some(Key::Enter),
        (KeyCode::Esc | KeyCode::Backspace, false) => Some(Key::Back),
        (KeyCode::PageUp, false) => Some(Key::PageUp),
        (KeyCode::PageDown, false) => Some(Key::PageDown),
        (_, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_map_to_documented_actions() {
        let plain = |code| meaning(code, false);
        assert_eq!(plain(KeyCode::Char('q')), Some(Key::Leave));
        assert_eq!(meaning(KeyCode::Char('c'), true), Some(Key::Leave));
        assert_eq!((plain(KeyCode::Char('c')), meaning(KeyCode::Char('q'), true)), (None, None));
        assert_eq!((plain(KeyCode::Char('j')), plain(KeyCode::Down)), (Some(Key::Down), Some(Key::Down)));
        assert_eq!((plain(KeyCode::Char('k')), plain(KeyCode::Up)), (Some(Key::Up), Some(Key::Up)));
        assert_eq!(plain(KeyCode::Enter), Some(Key::Enter));
    }
}
