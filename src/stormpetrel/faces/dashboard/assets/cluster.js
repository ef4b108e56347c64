// Cluster: a click on a bucket, and the same by keyboard. What is picked is kept in the link.
(function () {
    "use strict";
    var KEPT = ["at", "kind"]; // what the part about one bucket is drawn from; the rest of the page stays as it is

    function show(changes, scroll) {
        var parameters = new URLSearchParams(window.location.search);
        var picked = {};
        KEPT.forEach(function (name) {
            if (changes[name]) {
                parameters.set(name, changes[name]);
            } else if (changes[name] === null) {
                parameters.delete(name);
            }
            picked[name] = parameters.get(name);
        });
        window.stormpetrelLink.replaceQuery(parameters);
        window.stormpetrelLink.keepFocus();
        window.dash_clientside.set_props("cluster-pick", {data: picked});
        if (scroll) {
            document.getElementById("cluster-bucket").scrollIntoView({block: "nearest"});
        }
    }

    window.dash_clientside = window.dash_clientside || {};
    window.dash_clientside.clusterPage = {
        // A point of a figure: times of an axis are those of the site's clock, as the link has them. A row is a kind.
        point: function (click) {
            var point = click && click.points && click.points[0];
            var figure = window.dash_clientside.callback_context.triggered[0].prop_id.split(".")[0];
            var plot = document.querySelector("#" + figure + " .js-plotly-plot");
            var trace = point && plot && plot.data[point.curveNumber];
            if (!trace) {
                return;
            }
            // A bar of an outage means its beginning, one of a gap its middle.
            var meant = trace.base ? trace.base[point.pointNumber] : point.x;
            var time = /^\d{4}-\d\d-\d\d \d\d:\d\d/.exec(String(meant));
            if (time) {
                show({at: time[0].replace(" ", "T"), kind: typeof trace.meta === "string" ? trace.meta : null}, true);
            }
        },
    };

    // Links to a bucket of this page change only the part about it.
    document.addEventListener("click", function (event) {
        var link = event.target.closest("#cluster-alarms a, #cluster-outages a, #cluster-bucket a");
        if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) {
            return;
        }
        var parameters = new URL(link.href).searchParams;
        if (new URL(link.href).pathname === window.location.pathname && parameters.get("at")) {
            event.preventDefault();
            event.stopPropagation();
            show({at: parameters.get("at"), kind: parameters.get("kind")}, !link.closest("#cluster-bucket"));
        }
    }, true);
})();
