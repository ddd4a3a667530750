//! Case files: what goes in, `=>`, what comes out; cases are separated by blank lines.
//!
//! ```text
//! # A comment at the top of the file.
//! func main(%x: fp16[2]) { %y = identity(x=%x) %z = relu(x=%y) } -> %z
//! => func main(%x: fp16[2]) { %z = relu(x=%x) } -> %z
//! ```

use std::path::{Path, PathBuf};

/// A file of cases.
#[derive(Debug, Clone)]
pub struct CaseFile {
    pub path: PathBuf,
    /// Comment lines at the top.
    pub header: String,
    pub cases: Vec<Case>,
}

/// One case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    pub input: String,
    pub expected: String,
}

impl CaseFile {
    /// # Panics
    /// When the file cannot be read or a case has no `=>`: it is a test that says so.
    pub fn read(path: &Path) -> CaseFile {
        let text =
            std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let is_header = |line: &&str| line.starts_with('#') || line.trim().is_empty();
        let header: Vec<&str> = text.lines().take_while(is_header).collect();
        let body: Vec<&str> = text.lines().skip(header.len()).collect();
        let cases = body
            .split(|line| line.trim().is_empty())
            .filter(|lines| !lines.is_empty())
            .map(|lines| {
                let text = lines.join("\n");
                let (input, expected) = text
                    .split_once("\n=> ")
                    .unwrap_or_else(|| panic!("{}: a case without `=>`:\n{text}", path.display()));
                Case { input: input.into(), expected: expected.into() }
            })
            .collect();
        CaseFile { path: path.into(), header: header.join("\n"), cases }
    }

    /// Every `.case` file of a folder, by name.
    pub fn all(folder: &Path) -> Vec<CaseFile> {
        let entries = std::fs::read_dir(folder);
        let entries = entries.unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        let mut paths: Vec<PathBuf> = entries
            .map(|e| e.expect("a folder that lists").path())
            .filter(|p| p.extension().is_some_and(|e| e == "case"))
            .collect();
        paths.sort();
        paths.iter().map(|p| CaseFile::read(p)).collect()
    }

    /// The file's name without `.case`.
    pub fn name(&self) -> &str {
        self.path.file_stem().and_then(|s| s.to_str()).unwrap_or_default()
    }

    fn write(&self) {
        let cases: Vec<String> =
            self.cases.iter().map(|c| format!("{}\n=> {}\n", c.input, c.expected)).collect();
        let header = format!("{}\n", self.header.trim_end());
        let text = format!("{}{}", header.trim_start(), cases.join("\n"));
        std::fs::write(&self.path, text).expect("a case file that can be written");
    }
}

/// Compares what each case makes with what it expects; with `BLESS=1` rewrites what is expected.
///
/// # Panics
/// When a case differs, showing both sides.
pub fn bless(mut file: CaseFile, run: impl Fn(&Case) -> (String, String)) {
    let blessing = std::env::var_os("BLESS").is_some();
    let mut wrong = Vec::new();
    for case in &mut file.cases {
        let (made, expected) = run(case);
        if made != expected {
            wrong.push(format!("{}\n=> expected\n{expected}\n=> made\n{made}", case.input));
            if blessing {
                case.expected = made.trim_end().to_owned();
            }
        }
    }
    if blessing {
        file.write();
    } else {
        assert!(wrong.is_empty(), "{}:\n{}", file.path.display(), wrong.join("\n\n"));
    }
}
