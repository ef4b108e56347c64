// Nodes and traces: a click on a node, a point or a thread, and the same by keyboard. What is picked is kept in the link.
(function () {
    "use strict";
    var KEPT = ["pick", "mode"]; // what the part about one window is drawn from; the rest of the page stays as it is

    function first(click) {
        return click && click.points && click.points[0];
    }

    function show(changes) {
        var parameters = new URLSearchParams(window.location.search);
        var picked = {};
        KEPT.forEach(function (name) {
            if (changes[name]) {
                parameters.set(name, changes[name]);
            }
            picked[name] = parameters.get(name);
        });
        window.stormpetrelLink.replaceQuery(parameters);
        window.stormpetrelLink.keepFocus();
        window.dash_clientside.set_props("nodes-pick", {data: picked});
        if (changes.pick) {
            document.getElementById("nodes-trace").scrollIntoView({block: "nearest"});
        }
    }

    function plotted(id) {
        return document.querySelector("#" + id + " .js-plotly-plot");
    }

    // Times of an axis have no zone; as numbers they are only compared with each other.
    function asNumber(time) {
        return Date.parse(String(time).slice(0, 19).replace(" ", "T") + "Z");
    }

    function columnOf(times, time) {
        var words = Array.from(times).indexOf(time); // where times are left out, columns have names
        if (words >= 0) {
            return words;
        }
        var distances = Array.from(times, function (one) { return Math.abs(asNumber(one) - asNumber(time)); });
        return distances.indexOf(Math.min.apply(null, distances));
    }

    window.dash_clientside = window.dash_clientside || {};
    window.dash_clientside.nodes = {
        // A cell of the heat map: its node, and the time of its column.
        focus: function (click) {
            var point = first(click), plot = plotted("nodes-heat");
            if (!point || !plot) {
                return;
            }
            var meta = plot.layout.meta;
            var start = meta.starts[columnOf(plot.data[0].x, point.x)];
            var parameters = new URLSearchParams(window.location.search);
            parameters.set("node", meta.nodes[point.y]);
            parameters.set("at", start + ".." + (start + meta.bin_s));
            parameters.delete("pick");
            window.stormpetrelLink.pushQuery(parameters);
        },

        // A point of a map.
        point: function (click) {
            var point = first(click);
            if (point && point.customdata) {
                show({pick: String(point.customdata)});
            }
        },

        // A row of the threads around the one that is shown.
        thread: function (click) {
            var point = first(click), plot = plotted("nodes-threads");
            var row = point && plot ? Array.from(plot.data[0].y).indexOf(point.y) : -1;
            if (row >= 0) {
                show({pick: plot.layout.meta.keys[row]});
            }
        },
    };

    // Links to a window of this page change only the part about it.
    document.addEventListener("click", function (event) {
        var link = event.target.closest("#nodes-windows a, #nodes-trace a");
        if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) {
            return;
        }
        var parameters = new URL(link.href).searchParams;
        if (new URL(link.href).pathname === window.location.pathname && (parameters.get("pick") || parameters.get("mode"))) {
            event.preventDefault();
            show({pick: parameters.get("pick"), mode: parameters.get("mode")});
        }
    }, true);
})();
