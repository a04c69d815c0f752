"""The mmap module: anonymous, of a file, grown; and the interpreter's own arenas coming and going."""
import mmap

anonymous = mmap.mmap(-1, 8392704)
anonymous[8000000] = 7
anonymous.close()
with open("mapped.bin", "w+b") as file:
    file.truncate(4198400)
    mapped = mmap.mmap(file.fileno(), 4198400)
    mapped[0:2] = b"ok"
    mapped.resize(8396800)
    print("grown", len(mapped), mapped[0:2].decode())
    mapped.close()
many = [bytes(150 + i % 60) for i in range(200000)]
del many
print("TRUTH map=8392704 maps=1 kind=anon_shared")
print("TRUTH map=4198400 maps=1 kind=file_shared")
