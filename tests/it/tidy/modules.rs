//! The module tree as `src/lib.rs` and each `mod.rs` declare it.

use super::tree::{Finding, Token, Tree, code, tokens};

/// One module that is a file of its own.
#[derive(Debug)]
pub(super) struct Module {
    /// Its name; empty for the crate itself.
    pub(super) name: String,
    pub(super) file: String,
    /// The file and line where its parent declares it.
    pub(super) declared_in: String,
    pub(super) line: usize,
    /// In the order of declaration.
    pub(super) children: Vec<Module>,
}

impl Module {
    /// The whole tree below `src/lib.rs`.
    pub(super) fn root(tree: &Tree) -> Self {
        let mut root = Self {
            name: String::new(),
            file: "src/lib.rs".to_owned(),
            declared_in: String::new(),
            line: 0,
            children: Vec::new(),
        };
        root.find_children(tree, "src");
        root
    }

    fn find_children(&mut self, tree: &Tree, folder: &str) {
        let text = code(tree.text(&self.file).unwrap_or_default());
        for (name, line) in declarations(&tokens(&text)) {
            let inner = format!("{folder}/{name}");
            let file = [format!("{inner}/mod.rs"), format!("{inner}.rs")];
            let mut child = Self {
                name: name.to_owned(),
                file: file.into_iter().find(|file| tree.text(file).is_some()).unwrap_or_default(),
                declared_in: self.file.clone(),
                line,
                children: Vec::new(),
            };
            child.find_children(tree, &inner);
            self.children.push(child);
        }
    }

    /// The child of that name and its place in the order of declaration.
    pub(super) fn child(&self, name: &str) -> Option<(usize, &Self)> {
        self.children.iter().enumerate().find(|(_, child)| child.name == name)
    }

    /// This module and all below it, each with its path from the crate.
    pub(super) fn walk(&self) -> Vec<(Vec<&str>, &Self)> {
        let mut all = vec![(Vec::new(), self)];
        for child in &self.children {
            for (path, module) in child.walk() {
                let path = std::iter::once(child.name.as_str()).chain(path).collect();
                all.push((path, module));
            }
        }
        all
    }
}

/// `mod name;` with its line.
fn declarations<'a>(tokens: &[Token<'a>]) -> Vec<(&'a str, usize)> {
    tokens
        .windows(3)
        .filter(|w| w[0].text == "mod" && w[2].text == ";")
        .map(|w| (w[1].text, w[0].line))
        .collect()
}

/// Returns the source files that no listing declares, and the modules of which their listing has no line of doc.
pub(super) fn undeclared_or_undescribed(tree: &Tree) -> Vec<Finding> {
    let root = Module::root(tree);
    let modules = root.walk();
    let undeclared = tree
        .files(&["src/"], ".rs")
        .filter(|(path, _)| !modules.iter().any(|(_, module)| module.file == *path))
        .map(|(path, _)| Finding {
            path: path.to_owned(),
            line: 1,
            message: "no listing above it declares this file".to_owned(),
        });
    let undescribed = modules
        .iter()
        .skip(1)
        .filter(|(_, module)| !is_described(tree, module))
        .map(|(_, module)| Finding {
            path: module.declared_in.clone(),
            line: module.line,
            message: format!("say in one `///` line what `{}` is", module.name),
        });
    undeclared.chain(undescribed).collect()
}

/// Returns true if the listing that declares the module has a line on it.
fn is_described(tree: &Tree, module: &Module) -> bool {
    let parent = tree.text(&module.declared_in).unwrap_or_default();
    let above: Vec<&str> = parent.lines().take(module.line - 1).collect();
    let item_above = |line: &&&str| line.trim().is_empty() || line.ends_with([';', '}']);
    let mut documented = above.iter().rev().take_while(|line| !item_above(line));
    documented.any(|line| line.trim_start().starts_with("///"))
}

#[test]
fn an_undescribed_and_an_undeclared_module_are_reported() {
    let tree = Tree::planted(&[
        (
            "src/lib.rs",
            "/// Bytes.\n#[cfg(\n    any()\n)]\npub mod format;\npub mod log;\n/// Reading.\npub mod read;\n",
        ),
        ("src/format.rs", ""),
        ("src/log.rs", "use std::io;\n"),
        ("src/read/mod.rs", "//! Reading.\n\nmod scan;\n"),
        ("src/read/scan.rs", "//! Its own line is not enough.\n"),
        ("src/read/lost.rs", "//! Nobody declares me.\n"),
    ]);
    assert_eq!(
        super::shown(&undeclared_or_undescribed(&tree)),
        [
            "src/read/lost.rs:1: no listing above it declares this file",
            "src/lib.rs:6: say in one `///` line what `log` is",
            "src/read/mod.rs:3: say in one `///` line what `scan` is",
        ]
    );
}
