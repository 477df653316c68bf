//! What the assembler says that an entry point takes: registers, spills, stack, shared
//! memory.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What one entry point takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// The entry point.
    pub name: String,
    /// Registers a thread.
    pub registers: u32,
    /// Bytes a thread writes to local memory for want of registers, its callees' included.
    pub spill_stores: u32,
    /// Bytes a thread reads back, its callees' included.
    pub spill_loads: u32,
    /// Bytes of stack a thread, the deepest calls included.
    pub stack_bytes: u32,
    /// Static shared memory of a block in bytes.
    pub static_shared_bytes: u32,
    /// Named barriers of a block.
    pub barriers: u32,
}

/// Reads the output of `ptxas -v`, as nvcc and NVRTC print it, sorted by name.
///
/// ```text
/// ptxas info    : Compiling entry function 'k' for 'sm_90a'
/// ptxas info    : Function properties for k
///     160 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
/// ptxas info    : Used 64 registers, used 1 barriers, 160 bytes cumulative stack size, 256 bytes smem
/// ptxas info    : Function properties for _Z1fPfi
///     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
/// ```
///
/// What stands after an entry point's own lines belongs to the functions it calls.
pub fn parse(log: &str) -> Vec<Resources> {
    let mut found: BTreeMap<String, Resources> = BTreeMap::new();
    let mut entry: Option<String> = None;
    let mut own = false;
    for line in log.lines() {
        if let Some(name) = after(line, "Compiling entry function '") {
            let name = name.split('\'').next().unwrap_or_default().to_owned();
            found.entry(name.clone()).or_default().name = name.clone();
            entry = Some(name);
            continue;
        }
        let Some(resources) = entry.as_ref().and_then(|name| found.get_mut(name)) else {
            continue;
        };
        if let Some(function) = after(line, "Function properties for ") {
            own = function.trim() == resources.name;
        } else if line.contains("bytes stack frame") {
            resources.spill_stores += before(line, " bytes spill stores");
            resources.spill_loads += before(line, " bytes spill loads");
            if own {
                resources.stack_bytes = before(line, " bytes stack frame");
            }
        } else if line.contains(" registers") && line.contains("Used ") {
            resources.registers = before(line, " registers");
            resources.barriers = before(line, " barriers");
            resources.static_shared_bytes = before(line, " bytes smem");
            let deepest = before(line, " bytes cumulative stack size");
            resources.stack_bytes = resources.stack_bytes.max(deepest);
        }
    }
    found.into_values().collect()
}

/// What a compiler warned of, a line each: diagnostics of the front end, warnings of the
/// assembler, and its performance advisories (`(C7510) Potential Performance Loss: ...`),
/// which it calls information.
pub fn warnings(log: &str) -> Vec<String> {
    let warns = |line: &&str| {
        let assembler = line.starts_with("ptxas");
        line.contains("): warning ")
            || line.contains("warning:")
            || (assembler && (line.contains("warning") || line.contains(": (C")))
    };
    let mut found: Vec<String> = log.lines().filter(warns).map(str::to_owned).collect();
    found.dedup();
    found
}

fn after<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    line.split_once(mark).map(|(_, rest)| rest)
}

/// The number before a mark; 0 where the line has no such part.
fn before(line: &str, mark: &str) -> u32 {
    let Some((front, _)) = line.split_once(mark) else {
        return 0;
    };
    let digits = front.rsplit(|c: char| !c.is_ascii_digit()).next();
    digits.unwrap_or_default().parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// nvcc 13.0.88 on two entry points that call a function which is not inlined, with
    /// its own spills written in.
    const NVCC: &str = "\
no.cu(3): warning #177-D: variable \"unused\" was declared but never referenced
  extern \"C\" __attribute__((global)) void k2(float*p,int n){ int unused; p[0]=f(p+1,n);}
                                                                 ^

Remark: The warnings can be suppressed with \"-diag-suppress <warning-number>\"

ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k2' for 'sm_90a'
ptxas info    : Function properties for k2
    0 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 47 registers, used 0 barriers, 160 bytes cumulative stack size
ptxas info    : Compile time = 22.936 ms
ptxas info    : Function properties for _Z1fPfi
    160 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized
ptxas info    : Function properties for k
    24 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 64 registers, used 1 barriers, 256 bytes smem, 364 bytes cmem[0]
ptxas info    : Compile time = 22.355 ms
";

    /// NVRTC 13.0 begins some of the lines with the assembler's name.
    const NVRTC: &str = "\
ptxas info    : 12 bytes gmem
ptxas info    : Compiling entry function 'naive_softmax_bf16' for 'sm_90a'
ptxas info    : Function properties for naive_softmax_bf16
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 31 registers, used 1 barriers, 16 bytes smem
ptxas info    : Compile time = 12.766 ms
";

    #[test]
    fn nvcc_is_read() {
        let found = parse(NVCC);
        let k = Resources {
            name: "k".to_owned(),
            registers: 64,
            stack_bytes: 24,
            static_shared_bytes: 256,
            barriers: 1,
            ..Resources::default()
        };
        let k2 = Resources {
            name: "k2".to_owned(),
            registers: 47,
            spill_stores: 24,
            spill_loads: 36,
            stack_bytes: 160,
            ..Resources::default()
        };
        assert_eq!(found, [k, k2]);
    }

    #[test]
    fn nvrtc_is_read() {
        let found = parse(NVRTC);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].registers, found[0].barriers), (31, 1));
        assert_eq!(found[0].static_shared_bytes, 16);
        assert!(parse("ptxas info    : 0 bytes gmem\n").is_empty());
    }
}
