"""Every operation of torch.distributed.TCPStore as a client of the server at 127.0.0.1:PORT."""
import datetime
import sys

from torch.distributed import PrefixStore, TCPStore

port = int(sys.argv[1])
tcp = TCPStore("127.0.0.1", port, world_size=2, is_master=False, timeout=datetime.timedelta(seconds=30))
store = PrefixStore("job", tcp)
store.set("k", "v")
assert store.get("k") == b"v"
assert store.add("n", 41) == 41 and store.add("n", 1) == 42
assert store.check(["k", "n"]) and not store.check(["missing"])
assert store.compare_set("c", "", "1") == b"1"
assert store.compare_set("c", "2", "3") == b"1"
store.append("a", "12")
store.append("a", "34")
store.multi_set(["x", "y"], ["X", "Y"])
assert store.multi_get(["a", "y", "x"]) == [b"1234", b"Y", b"X"]
store.wait(["k", "a"], datetime.timedelta(seconds=10))
try:
    store.wait(["missing"], datetime.timedelta(milliseconds=10))
    raise AssertionError("the wait for a missing key ended")
except Exception as error:
    assert "imeout" in str(error), error
assert tcp.num_keys() == 7  # with init/
assert tcp.delete_key("job/x") and not tcp.delete_key("job/x")
if hasattr(tcp, "list_keys"):
    assert sorted(tcp.list_keys()) == ["job/a", "job/c", "job/k", "job/n", "job/y"], tcp.list_keys()
if hasattr(tcp, "queue_push"):
    tcp.queue_push("q", "1")
    assert tcp.queue_len("q") == 1
    assert tcp.queue_pop("q") == b"1"
if hasattr(tcp, "barrier"):
    tcp.barrier("b", 1, datetime.timedelta(seconds=10))
print("all operations work")
