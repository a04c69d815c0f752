//! A writer of traces by `docs/trace-format.md`, independent of the shim: what the tests and the bench read back.
//!
//! It encodes what it is told, in the order it is told, and resolves nothing: blocks are named by the tokens it gave.

use memshim::trace::column::push_v93;
use memshim_format::v93::zigzag;
use std::fmt::Write as _;

/// Identity of a block: lane and sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    pub lane: u32,
    pub seq: u64,
}

/// What an event frees.
#[derive(Clone, Copy, Debug)]
pub enum Old {
    Block(Token),
    Unknown { addr3: u64, usable: u64 },
}

#[derive(Default)]
struct Lane {
    seq: u64,
    seq0: u64,
    prev: u64,
    last: [u64; 8],
    k: Vec<u8>,
    x: Vec<u8>,
    z: Vec<u8>,
    t: Vec<u8>,
    n: u64,
    t0: u64,
    t1: u64,
    stamp_n: u64,
    stamp_ticks: u64,
    s: Vec<u8>,
    p: Vec<u8>,
    /// Events before the last pair of `s`, of `p`.
    sited: [u64; 2],
    /// How often the lane has allocated, where that is told, and what of it the batch has told.
    count: u64,
    counted: u64,
}

/// See the module.
pub struct Writer {
    pub out: Vec<u8>,
    lanes: Vec<Lane>,
    kinds: Vec<(u32, i64, u32, u32)>,
    written: usize,
    group: u64,
    tick: u64,
    /// Write columns as arrays of integers.
    pub arrays: bool,
    /// Say how often lanes had allocated (`ages` of the header).
    pub ages: bool,
    /// What happened before is in the next group or an earlier one.
    pub whole: Option<u64>,
}

pub const TICK: u64 = 100;

impl Writer {
    /// Starts with a header line; `extra` is put into it as it is (`,"key":…`).
    pub fn new(pid: u32, mode: &str, extra: &str) -> Self {
        let mut out = String::new();
        writeln!(
            out,
            r#"{{"type":"header","v":1,"run":"00","pid":{pid},"ppid":1,"start_ticks":77,"pid_ns":1,"exec":0,"mode":"{mode}","cols":"v93","tick_ns":{TICK},"mono_ns":1000,"wall_ns":1764289999000000000,"host":"nowhere","exe":"/bin/x","argv":["x"],"cwd":"/","rank":null,"job":null,"big":65536,"sample":524288,"page":4096,"allocator":"glibc","slack":24{extra}}}"#
        )
        .unwrap();
        Writer {
            out: out.into_bytes(),
            lanes: Vec::new(),
            kinds: Vec::new(),
            written: 0,
            group: 0,
            tick: TICK,
            arrays: false,
            ages: false,
            whole: None,
        }
    }

    /// The process ends as it should, at `t`.
    pub fn exit(&mut self, t: u64) {
        self.line(&format!(r#"{{"type":"end","t":{t},"how":"exit","code":0}}"#));
    }

    /// A whole line as it is.
    pub fn line(&mut self, text: &str) {
        self.out.extend(text.as_bytes());
        self.out.push(b'\n');
    }

    /// A kind's number.
    pub fn kind(&mut self, func: u32, size: i64, slack: u32, flags: u32) -> u64 {
        let row = (func, size, slack, flags);
        let at = self.kinds.iter().position(|k| *k == row).unwrap_or_else(|| {
            self.kinds.push(row);
            self.kinds.len() - 1
        });
        at as u64 + 1
    }

    fn lane(&mut self, lane: u32) -> &mut Lane {
        while self.lanes.len() <= lane as usize {
            self.lanes.push(Lane::default());
        }
        &mut self.lanes[lane as usize]
    }

    /// What this lane does from now on is not before `t`; `stamp`: say so in column `t`.
    pub fn at(&mut self, lane: u32, t: u64, stamp: bool) {
        let tick = self.tick;
        let l = self.lane(lane);
        if l.n == 0 {
            (l.t0, l.stamp_n, l.stamp_ticks) = (t, 0, 0);
        } else if stamp {
            let ticks = (t - l.t0) / tick;
            push_v93(&mut l.t, l.n - l.stamp_n);
            push_v93(&mut l.t, ticks - l.stamp_ticks);
            (l.stamp_n, l.stamp_ticks) = (l.n, ticks);
        }
        l.t1 = l.t1.max(t);
    }

    /// An allocation, of a realloc if it ends `old` too. `wide`: size and slack of a kind of size −1.
    pub fn alloc(&mut self, lane: u32, kind: u64, wide: Option<(u64, u64)>, old: Option<Old>) -> Token {
        let l = self.lane(lane);
        push_v93(&mut l.k, kind * 3);
        if let Some((size, slack)) = wide {
            push_v93(&mut l.z, size);
            push_v93(&mut l.z, slack);
        }
        let token = Token { lane, seq: l.seq };
        l.seq += 1;
        l.n += 1;
        self.told(lane);
        if let Some(old) = old {
            self.end(lane, old);
        }
        token
    }

    /// The allocations that follow on this lane have these nodes.
    pub fn site(&mut self, lane: u32, native: u32, python: u32) {
        let l = self.lane(lane);
        for (i, (column, node)) in [(&mut l.s, native), (&mut l.p, python)].into_iter().enumerate() {
            push_v93(column, l.n - l.sited[i]);
            push_v93(column, node as u64);
            l.sited[i] = l.n;
        }
    }

    /// Native nodes of a lane from number `from` on: caller's number, frame.
    pub fn nodes(&mut self, lane: u32, from: u32, rows: &[(u32, u64)]) {
        let (mut column, mut before) = (Vec::new(), 0u64);
        for (n, &(parent, frame)) in (from..).zip(rows) {
            push_v93(&mut column, (n - parent) as u64);
            push_v93(&mut column, zigzag(frame.wrapping_sub(before) as i64));
            before = frame;
        }
        self.node_line("nodes", lane, from, rows.len(), &column);
    }

    /// Python nodes: caller's number, code, instruction << 1 | entry.
    pub fn pynodes(&mut self, lane: u32, from: u32, rows: &[(u32, u32, u32)]) {
        let mut column = Vec::new();
        for (n, &(parent, code, at)) in (from..).zip(rows) {
            [n - parent, code, at].iter().for_each(|&v| push_v93(&mut column, v as u64));
        }
        self.node_line("pynodes", lane, from, rows.len(), &column);
    }

    fn node_line(&mut self, kind: &str, lane: u32, from: u32, n: usize, column: &[u8]) {
        let text = String::from_utf8_lossy(column).into_owned();
        self.line(&format!(r#"{{"type":"{kind}","lane":{lane},"from":{from},"n":{n},"nodes":"{text}"}}"#));
    }

    /// A free.
    pub fn free(&mut self, lane: u32, old: Old) {
        self.lane(lane).n += 1;
        self.end(lane, old);
        if matches!(old, Old::Block(b) if b.lane == lane) {
            self.told(lane);
        }
    }

    /// Before the events that follow the lane had allocated so often.
    pub fn count(&mut self, lane: u32, allocs: u64) {
        self.lane(lane).count = allocs;
    }

    fn told(&mut self, lane: u32) {
        if self.ages {
            let l = self.lane(lane);
            push_v93(&mut l.x, l.count - l.counted);
            l.counted = l.count;
        }
    }

    /// The block allocated last was ended by a free written as unknown.
    pub fn settle(&mut self, lane: u32) {
        let l = self.lane(lane);
        l.n += 1;
        push_v93(&mut l.k, 2);
    }

    fn end(&mut self, lane: u32, old: Old) {
        let l = self.lane(lane);
        match old {
            Old::Block(b) if b.lane == lane => {
                let (age, delta) = (l.seq - b.seq, b.seq as i64 - l.prev as i64);
                let code = if age > 40 && delta != 0 && delta.abs() <= 20 { zigzag(delta) * 3 + 2 } else { age * 3 + 1 };
                l.prev = b.seq;
                push_v93(&mut l.k, code);
            }
            Old::Block(b) => {
                push_v93(&mut l.k, 1);
                push_v93(&mut l.x, b.lane as u64 + 1);
                let last = &mut l.last[b.lane as usize % 8];
                push_v93(&mut l.x, zigzag(b.seq as i64 - *last as i64));
                *last = b.seq;
            }
            Old::Unknown { addr3, usable } => {
                push_v93(&mut l.k, 1);
                [0, addr3, usable].iter().for_each(|&v| push_v93(&mut l.x, v));
            }
        }
    }

    /// A phase of a lane's begins or ends between its events; `name` of a begin is unique, and 0 at an end.
    pub fn edge(&mut self, lane: u32, t: u64, what: &str, name: u32) {
        let (group, l) = (self.group, self.lane(lane));
        let (at, seq) = (l.n, l.seq);
        if name > 0 {
            self.line(&format!(r#"{{"type":"phase","ev":[["name",{name},0,"p{name}"]]}}"#));
        }
        self.line(&format!(r#"{{"type":"phase","ev":[["{what}",{t},{lane},{group},{at},{seq},"api",{name},0,0]]}}"#));
    }

    /// Events pending in a lane.
    pub fn pending(&self, lane: u32) -> u64 {
        self.lanes.get(lane as usize).map_or(0, |l| l.n)
    }

    /// Writes all lanes' pending events as a group.
    pub fn flush(&mut self) {
        self.flush_of(|_| true);
    }

    /// The same of some lanes.
    pub fn flush_of(&mut self, meant: impl Fn(u32) -> bool) {
        if self.written < self.kinds.len() {
            let rows: Vec<String> = self.kinds[self.written..].iter().map(|k| format!("[{},{},{},{}]", k.0, k.1, k.2, k.3)).collect();
            let text = format!(r#"{{"type":"kinds","from":{},"kinds":[{}]}}"#, self.written + 1, rows.join(","));
            self.written = self.kinds.len();
            self.line(&text);
        }
        let mut any = false;
        for (lane, l) in self.lanes.iter_mut().enumerate().filter(|(lane, l)| l.n > 0 && meant(*lane as u32)) {
            any = true;
            let whole = self.whole.take().map_or(String::new(), |t| format!(r#","whole":{t}"#));
            let arrays = self.arrays;
            let column = |c: &[u8]| match arrays {
                false => format!("\"{}\"", String::from_utf8_lossy(c)),
                true => format!("{:?}", memshim_format::v93::Decoder::new(c).collect::<Vec<u64>>()),
            };
            writeln!(
                self.out.as_fmt(),
                r#"{{"type":"ev","g":{},"lane":{lane},"n":{},"seq":{},"t0":{},"t1":{}{whole},"t":{},"k":{},"x":{},"z":{}{},"allocs":0,"frees":0,"bytes":0,"live":0,"peak":0}}"#,
                self.group,
                l.n,
                l.seq0,
                l.t0,
                l.t1,
                column(&l.t),
                column(&l.k),
                column(&l.x),
                column(&l.z),
                if l.s.is_empty() { String::new() } else { format!(r#","s":{},"p":{}"#, column(&l.s), column(&l.p)) }
            )
            .unwrap();
            let Lane { seq, count, .. } = *l;
            *l = Lane { seq, seq0: seq, prev: seq, count, ..Lane::default() };
        }
        self.group += any as u64;
    }
}

/// `write!` into bytes.
struct AsFmt<'a>(&'a mut Vec<u8>);

impl std::fmt::Write for AsFmt<'_> {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        self.0.extend(s.as_bytes());
        Ok(())
    }
}

trait AsFmtExt {
    fn as_fmt(&mut self) -> AsFmt<'_>;
}

impl AsFmtExt for Vec<u8> {
    fn as_fmt(&mut self) -> AsFmt<'_> {
        AsFmt(self)
    }
}
