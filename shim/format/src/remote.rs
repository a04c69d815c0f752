//! File systems whose shared mappings another machine or a daemon serves: a store into one could wait for the network, and what a
//! killed process left might not be there. The shim makes no spool on them, and `doctor` says so beforehand.

/// `f_type` of `statfs`, by the names that the kernel gives in `mountinfo`.
pub const REMOTE: [(&str, i64); 21] = [
    ("nfs", 0x6969),
    ("smbfs", 0x517b),
    ("cifs", 0xff53_4d42),
    ("smb3", 0xfe53_4d42),
    ("fuse", 0x6573_5546),
    ("lustre", 0x0bd0_0bd0),
    ("gpfs", 0x4750_4653),
    ("beegfs", 0x1983_0326),
    ("ceph", 0x00c3_6400),
    ("9p", 0x0102_1997),
    ("afs", 0x5346_414f),
    ("kafs", 0x6b41_4653),
    ("panfs", 0xaad7_aaea),
    ("pvfs2", 0x2003_0528),
    ("coda", 0x7375_7245),
    ("ocfs2", 0x7461_636f),
    ("gfs2", 0x0116_1970),
    ("snfs", 0xbeef_dead),
    ("vmhgfs", 0xbacb_acbc),
    ("vboxsf", 0x786f_4256),
    ("prl_fs", 0x7c7c_6673),
];

/// Whether a file system of this `f_type` is one of them. Some kernels give the number with its sign extended.
pub fn is_remote(kind: i64) -> bool {
    REMOTE.iter().any(|(_, magic)| *magic == kind & 0xffff_ffff)
}
