"""What the node as a whole uses: pressure, memory, disks and networks, under node_exporter's names."""

from stormpetrel.exporter.files import Files
from stormpetrel.exporter.readings import NODE_FIGURES, NodeReader
from tests.exporter.made import FakeNode, figures_of, text_of


def figures(node: FakeNode) -> dict[tuple[str, str], float]:
    return {(figure.name, figure.device): figure.value for figure in NodeReader(Files(str(node.root))).read()}


def test_every_figure_of_the_node_is_read(tmp_path):
    found = figures(FakeNode(tmp_path).devices())
    assert {name for name, _ in found} == set(NODE_FIGURES)
    assert found["node_pressure_memory_waiting_seconds_total", ""] == 3.0
    assert found["node_memory_MemAvailable_bytes", ""] == 4000 * 1024
    assert found["node_disk_io_time_seconds_total", "sda"] == 2.5
    assert found["node_network_speed_bytes", "eth0"] == 1.25e9


def test_partitions_and_networks_without_hardware_are_not_counted_twice(tmp_path):
    assert {device for _, device in figures(FakeNode(tmp_path).devices())} == {"", "sda", "eth0"}


def test_what_a_node_does_not_offer_has_no_figure_and_is_no_problem(tmp_path):
    files = Files(str(FakeNode(tmp_path).root))
    names = {figure.name for figure in NodeReader(files).read()}
    assert names == {"node_pressure_cpu_waiting_seconds_total"}
    assert not any(files.problems.values())


def test_a_link_that_is_down_has_no_speed(tmp_path):
    node = FakeNode(tmp_path).devices()
    node.write("sys/class/net/eth0/speed", "-1\n")
    assert ("node_network_speed_bytes", "eth0") not in figures(node)


def test_lines_that_make_no_sense_are_counted_and_left_out(tmp_path):
    node = FakeNode(tmp_path).devices()
    node.write("proc/diskstats", '   8 0 sda 1 2 3 4 5 6 7 8 9 x 11\n 8 0 a{b}" 1 2 3 4 5 6 7 8 9 1 11\n')
    files = Files(str(node.root))
    assert not any(figure.name.startswith("node_disk") for figure in NodeReader(files).read())
    assert files.problems["malformed"] == 1


def test_prometheus_reads_the_figures_of_the_node(tmp_path):
    found = figures_of(text_of(FakeNode(tmp_path).devices().sampler()))
    assert found["node_network_receive_bytes_total", "eth0"] == 1000
    assert found["node_memory_MemTotal_bytes",] == 16000 * 1024
