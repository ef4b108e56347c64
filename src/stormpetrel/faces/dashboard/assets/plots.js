// Downloads of a figure: as a picture, or what it draws as a table.
(function () {
    "use strict";

    function cell(value) {
        var text = value === null || value === undefined ? "" : String(value);
        if (/^[=+\-@\t\r\n\uFF1D\uFF0B\uFF0D\uFF20]/.test(text) && isNaN(Number(text))) {
            text = "'" + text; // a spreadsheet would take it for a formula
        }
        return /[",\r\n]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text;
    }

    function values(column) {
        if (!column) {
            return [];
        }
        return column.bdata ? [] : Array.from(column);
    }

    function asCsv(plot) {
        var lines = ["series,x,y,z"];
        (plot._fullData || []).forEach(function (trace) {
            if (trace.z && trace.z.length && trace.z[0].length !== undefined) {
                Array.from(trace.z).forEach(function (row, j) {
                    Array.from(row).forEach(function (value, i) {
                        lines.push([trace.name, values(trace.x)[i], values(trace.y)[j], value].map(cell).join(","));
                    });
                });
                return;
            }
            var x = values(trace.x), y = values(trace.y);
            for (var i = 0; i < Math.max(x.length, y.length); i += 1) {
                lines.push([trace.name, x[i], y[i], ""].map(cell).join(","));
            }
        });
        return lines.join("\r\n") + "\r\n";
    }

    function save(name, text) {
        var link = document.createElement("a");
        link.href = URL.createObjectURL(new Blob([text], {type: "text/csv"}));
        link.download = name;
        link.click();
        URL.revokeObjectURL(link.href);
    }

    document.addEventListener("click", function (event) {
        var button = event.target.closest("[data-download]");
        var plot = button && button.closest(".plot").querySelector(".js-plotly-plot");
        if (!plot || !window.Plotly) {
            return;
        }
        var kind = button.dataset.download, name = button.dataset.name;
        if (kind === "csv") {
            save(name + ".csv", asCsv(plot));
        } else {
            window.Plotly.downloadImage(plot, {format: kind, filename: name, scale: 2, width: plot.offsetWidth, height: plot.offsetHeight});
        }
    });
})();
