"""Row `tls` of suite `nodes`: samples that come from another node over encrypted connections,
beside the same over connections in plaintext. The nodes are those of row `link`; both jobs run at
the same time, and one of them reads at a time."""

from harness import datasets, network, nodes_job, nodes_link, spine
from harness.figures import Goal, interleave, ratios

SIZES = (datasets.MEAN_SAMPLE_BYTES, nodes_link.SMALL_BYTES)
GOALS = {f"nodes.tls.{datasets.MEAN_SAMPLE_BYTES}_of_plaintext": ("x", Goal(0.7))}


def run(suite):
    for size in SIZES:
        samples = (suite.scale.samples if size == datasets.MEAN_SAMPLE_BYTES
                   else suite.scale.small_samples)
        records = suite.records(size, samples)
        keys = spine.ram_keys(records)
        with network.network(2) as net, nodes_job.secret() as secret, \
                suite.jobs.weighted_pair(net, keys, records) as plain, \
                suite.jobs.weighted_pair(net, {**keys, "peer.secret": f"file:{secret}"}, records,
                                         port=nodes_job.PORT + 1) as encrypted:
            nodes_job.check_encryption(plain, False)
            nodes_job.check_encryption(encrypted, True)
            results = interleave(suite.scale.pairs, {
                "tls": nodes_link.warm_reader(suite, encrypted),
                "plaintext": nodes_link.warm_reader(suite, plain)})
        for figure in figures_of(size, results):
            suite.sheet.add(figure)


def figures_of(size, results):
    """`results`: contender -> what each of its runs reported."""
    figure = nodes_link.figure_maker(f"nodes.tls.{size}", GOALS)
    rates, of_rates = nodes_link.remote_rates(figure, size, results["tls"], ", encrypted")
    costs, of_costs = nodes_link.remote_costs(figure, results["tls"])
    plain = nodes_link.figure_maker(f"nodes.tls.{size}_plaintext", GOALS)
    plain_rates, of_plain = nodes_link.remote_rates(plain, size, results["plaintext"])
    plain_costs, _ = nodes_link.remote_costs(plain, results["plaintext"])
    return [*of_rates, of_costs, *of_plain,
            figure("_of_plaintext", "x", ratios(rates, plain_rates)),
            figure("_cpu_of_plaintext", "x", ratios(costs, plain_costs))]
