# Git: many short processes, maps of packs, threads in the packing.
export HOME=$PWD GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
export GIT_AUTHOR_DATE='1700000000 +0000' GIT_COMMITTER_DATE='1700000000 +0000'
git init -q -b main work && cd work
for i in $(seq 8); do
    seq "$i" $((i * 400)) >"file$i"
    git add . && git commit -q -m "number $i"
done
git gc -q --aggressive && git fsck --no-progress
git log --format='%h %s' -n 2
git clone -q . ../copy && diff -r --exclude=.git . ../copy && echo same
