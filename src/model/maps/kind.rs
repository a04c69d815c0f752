//! What a mapping is of, and in which class it counts.

/// What a mapping is of: the `kind` of a `maps` row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MapKind {
    AnonPrivate,
    AnonShared,
    FilePrivate,
    FileShared,
    MemfdPrivate,
    MemfdShared,
    DevZeroPrivate,
    SysvShm,
    Stack,
}

impl MapKind {
    /// Of the number in a trace; one that this version does not know counts as a file.
    pub fn of_number(n: u64) -> Self {
        use MapKind::*;
        const ALL: [MapKind; 9] =
            [AnonPrivate, AnonShared, FilePrivate, FileShared, MemfdPrivate, MemfdShared, DevZeroPrivate, SysvShm, Stack];
        usize::try_from(n).ok().and_then(|n| ALL.get(n).copied()).unwrap_or(FilePrivate)
    }

    /// As it stands in `analyze --json`.
    pub fn name(self) -> &'static str {
        match self {
            MapKind::AnonPrivate => "anon_private",
            MapKind::AnonShared => "anon_shared",
            MapKind::FilePrivate => "file_private",
            MapKind::FileShared => "file_shared",
            MapKind::MemfdPrivate => "memfd_private",
            MapKind::MemfdShared => "memfd_shared",
            MapKind::DevZeroPrivate => "dev_zero_private",
            MapKind::SysvShm => "sysv_shm",
            MapKind::Stack => "stack",
        }
    }

    pub(super) fn class(self) -> Class {
        match self {
            MapKind::AnonPrivate | MapKind::DevZeroPrivate => Class::Anon,
            MapKind::FilePrivate | MapKind::FileShared => Class::File,
            // A private memfd shows the memfd's pages, which are shared memory, until it is written to.
            MapKind::AnonShared | MapKind::MemfdPrivate | MapKind::MemfdShared | MapKind::SysvShm => Class::Shared,
            MapKind::Stack => Class::Stack,
        }
    }

    /// Private anonymous memory: what a region's history counts.
    pub(super) fn is_anon(self) -> bool {
        matches!(self.class(), Class::Anon | Class::Stack)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Class {
    #[default]
    Anon,
    File,
    Shared,
    Stack,
}
