// The page of jobs: keeps grid, link and open job in step. The link is what counts: clicks change the link, the page follows it.
(function () {
    "use strict";
    var GRID = "jobs-grid";
    var WITHOUT_VALUE = ["blank", "notBlank"];
    var TYPES = [
        "contains", "notContains", "equals", "notEqual", "startsWith", "endsWith", "blank", "notBlank",
        "lessThan", "lessThanOrEqual", "greaterThan", "greaterThanOrEqual", "inRange",
    ];
    var OWN = ["view", "search", "sort", "job"];
    // From which width of the table on a column is shown; the others always are.
    var NEEDS = {
        user: 468, state: 610, job_name: 740, submit_time: 880, waiting_words: 1080, likeliest: 1230,
        start_time: 1360, moment: 1487, account: 1612, partition: 1732,
    };
    var grid = null; // {api, view, search, open, requests, seen}

    function parameters() {
        return new URLSearchParams(window.location.search);
    }

    // ---- link <-> grid ----

    function filterKind(api, column) {
        var definition = api.getColumnDef(column);
        return definition && {agTextColumnFilter: "text", agNumberColumnFilter: "number", agDateColumnFilter: "date"}[definition.filter];
    }

    function filtersOf(api, query) {
        var model = {};
        query.forEach(function (value, column) {
            var kind = OWN.indexOf(column) < 0 && filterKind(api, column);
            if (!kind) {
                return;
            }
            var colon = value.indexOf(":");
            var type = colon < 0 ? value : value.slice(0, colon);
            var operand = value.slice(colon + 1);
            if (TYPES.indexOf(type) < 0 || (colon < 0 && WITHOUT_VALUE.indexOf(type) < 0)) {
                type = "equals";
                operand = value;
            }
            var ends = type === "inRange" ? operand.split("..") : [operand];
            var filter = {filterType: kind, type: type};
            if (kind === "date") {
                filter.dateFrom = ends[0] ? ends[0] + " 00:00:00" : null;
                filter.dateTo = ends[1] ? ends[1] + " 00:00:00" : null;
            } else if (WITHOUT_VALUE.indexOf(type) < 0) {
                filter.filter = kind === "number" ? Number(ends[0]) : ends[0];
                if (ends[1] !== undefined) {
                    filter.filterTo = Number(ends[1]);
                }
            }
            model[column] = filter;
        });
        return model;
    }

    function writtenFilter(filter) {
        if (WITHOUT_VALUE.indexOf(filter.type) >= 0) {
            return filter.type;
        }
        var first = filter.filterType === "date" ? (filter.dateFrom || "").slice(0, 10) : filter.filter;
        var last = filter.filterType === "date" ? (filter.dateTo || "").slice(0, 10) : filter.filterTo;
        return filter.type + ":" + first + (filter.type === "inRange" ? ".." + last : "");
    }

    function sortOf(query) {
        return (query.get("sort") || "").split(",").filter(Boolean).map(function (word) {
            var name = word.replace(/^-/, "");
            return {colId: name === "confidence" ? "risk" : name, sort: word[0] === "-" ? "desc" : "asc"}; // as older links call it
        });
    }

    function sortIn(api) {
        return api.getColumnState().filter(function (column) { return column.sort; })
            .sort(function (a, b) { return a.sortIndex - b.sortIndex; })
            .map(function (column) { return (column.sort === "desc" ? "-" : "") + column.colId; }).join(",");
    }

    function remember() {
        if (!grid || grid.following) {
            return;
        }
        var query = parameters(), model = grid.api.getFilterModel();
        Array.from(query.keys()).forEach(function (name) {
            if (OWN.indexOf(name) < 0) {
                query.delete(name);
            }
        });
        Object.keys(model).forEach(function (column) { query.set(column, writtenFilter(model[column])); });
        var sort = sortIn(grid.api);
        if (sort) {
            query.set("sort", sort);
        } else {
            query.delete("sort");
        }
        window.stormpetrelLink.replaceQuery(query);
    }

    function applyLink() {
        var query = parameters(), api = grid.api;
        var view = query.get("view") || "now", search = query.get("search") || "";
        var filters = filtersOf(api, query), sort = sortOf(query);
        var stale = view !== grid.view || search !== grid.search;
        grid.view = view;
        grid.search = search;
        markView(view);
        var field = document.getElementById("jobs-search");
        if (field && field.value !== search && document.activeElement !== field) {
            window.dash_clientside.set_props("jobs-search", {value: search});
        }
        grid.following = true;
        if (JSON.stringify(filters) !== JSON.stringify(api.getFilterModel())) {
            api.setFilterModel(filters);
        }
        var wanted = sort.map(function (one) { return (one.sort === "desc" ? "-" : "") + one.colId; }).join(",");
        if (wanted !== sortIn(api)) {
            api.applyColumnState({
                state: sort.map(function (one, index) { return {colId: one.colId, sort: one.sort, sortIndex: index}; }),
                defaultState: {sort: null},
            });
        }
        grid.following = false;
        if (stale && grid.ready) {
            api.ensureIndexVisible(0);
            api.purgeInfiniteCache();
        }
        openJob(query.get("job") || "");
    }

    function markView(view) {
        document.querySelectorAll("[data-view]").forEach(function (link) {
            if (link.dataset.view === view) {
                link.setAttribute("aria-current", "true");
            } else {
                link.removeAttribute("aria-current");
            }
        });
    }

    // ---- the open job ----

    function openJob(ref) {
        if (ref === grid.open) {
            return;
        }
        grid.open = ref;
        var split = document.getElementById("jobs-split");
        split.dataset.open = String(Boolean(ref));
        document.getElementById("job-panel").hidden = !ref;
        window.dash_clientside.set_props("jobs-open", {data: ref});
        selectOpen();
        if (ref && grid.clicked && window.matchMedia("(max-width: 75rem)").matches) {
            var calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
            document.getElementById("job-panel").scrollIntoView({behavior: calm ? "auto" : "smooth", block: "start"});
        }
        grid.clicked = false;
    }

    function ask(ref) {
        var query = parameters();
        if (ref) {
            query.set("job", ref);
        } else {
            query.delete("job");
        }
        if (grid) {
            grid.clicked = true;
        }
        window.stormpetrelLink.pushQuery(query);
    }

    function selectOpen() {
        grid.api.forEachNode(function (node) {
            var wanted = Boolean(node.data && node.data.ref === grid.open);
            if (node.isSelected() !== wanted && node.data) {
                node.setSelected(wanted);
            }
        });
    }

    // ---- rows ----

    function datasource(mine) {
        return {
            rowCount: undefined,
            getRows: function (params) {
                mine.requests += 1;
                mine.waiting[mine.requests] = params;
                window.dash_clientside.set_props("jobs-request", {data: {
                    id: mine.requests, view: mine.view, search: mine.search, startRow: params.startRow, endRow: params.endRow,
                    sortModel: params.sortModel, filterModel: params.filterModel,
                }});
            },
        };
    }

    function flash(rows) {
        var calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
        rows.forEach(function (row) {
            var before = grid.seen[row.ref];
            var changed = before && ["state", "prediction", "risk", "start_time", "moment"].filter(function (name) {
                return before[name] !== row[name];
            });
            grid.seen[row.ref] = row;
            var node = changed && changed.length && !calm && grid.api.getRowNode(row.ref);
            if (node) {
                grid.api.flashCells({rowNodes: [node], columns: changed, flashDuration: 600, fadeDuration: 1200});
            }
        });
    }

    // Rows that came in above have moved the job that had the focus: the focus goes with it.
    function keepFocus() {
        var cell = grid.api.getFocusedCell(), node = grid.focused && grid.api.getRowNode(grid.focused);
        var inside = document.getElementById(GRID).contains(document.activeElement);
        if (cell && node && inside && node.rowIndex !== cell.rowIndex) {
            grid.api.setFocusedCell(node.rowIndex, cell.column);
        }
    }

    function counted(answer) {
        if (answer.problem) {
            return answer.problem;
        }
        if (!answer.total) {
            return "No job fits. Choose another view, or clear filters and search.";
        }
        return answer.total.toLocaleString("en") + (answer.total === 1 ? " job" : " jobs") + (answer.order ? ", " + answer.order : "");
    }

    function fitColumns() {
        if (!grid) {
            return;
        }
        var width = document.getElementById(GRID).clientWidth, show = [], hide = [];
        Object.keys(NEEDS).forEach(function (column) { (width >= NEEDS[column] ? show : hide).push(column); });
        if (String(hide) !== grid.hidden) {
            grid.hidden = String(hide);
            grid.api.setColumnsVisible(show, true);
            grid.api.setColumnsVisible(hide, false);
            if (width < NEEDS.job_name) {
                grid.api.sizeColumnsToFit();
            }
        }
    }

    function begin(api) {
        grid = {api: api, view: null, search: null, open: null, requests: 0, waiting: {}, seen: {}, ready: false, following: false};
        fitColumns();
        applyLink();
        api.addEventListener("filterChanged", remember);
        api.addEventListener("sortChanged", remember);
        api.addEventListener("gridSizeChanged", fitColumns);
        api.addEventListener("cellFocused", function (event) {
            var node = api.getDisplayedRowAtIndex(event.rowIndex);
            grid.focused = node && node.data ? node.data.ref : null;
        });
        api.addEventListener("rowClicked", function (event) {
            if (event.data && !String(window.getSelection())) {
                ask(event.data.ref);
            }
        });
        api.addEventListener("cellKeyDown", function (event) {
            var key = event.event && event.event.key;
            if (event.data && (key === "Enter" || key === " ")) {
                event.event.preventDefault();
                ask(event.data.ref);
            }
        });
        api.setGridOption("datasource", datasource(grid));
        grid.ready = true;
    }

    // The grid gets a data source of Dash's as soon as it is ready; ours, which knows view and search, has to come after it.
    function whenReady(api, then, tries) {
        if (api.getGridOption("datasource") || tries > 500) {
            then(api);
        } else {
            window.setTimeout(function () { whenReady(api, then, tries + 1); }, 10);
        }
    }

    window.dash_clientside = window.dash_clientside || {};
    window.dash_clientside.jobs = {
        follow: function (id) {
            if (!id) {
                return window.dash_clientside.no_update;
            }
            window.dash_ag_grid.getApiAsync(GRID).then(function (api) {
                whenReady(api, function () {
                    if (!grid || grid.api !== api) {
                        begin(api);
                    } else {
                        applyLink();
                    }
                }, 0);
            });
            return window.dash_clientside.no_update;
        },

        take: function (answer) {
            var params = answer && grid && grid.waiting[answer.id];
            if (!params) {
                return [window.dash_clientside.no_update, window.dash_clientside.no_update];
            }
            delete grid.waiting[answer.id];
            if (answer.problem) {
                params.failCallback();
            } else {
                params.successCallback(answer.rows, answer.total);
                window.setTimeout(function () {
                    flash(answer.rows);
                    selectOpen();
                    keepFocus();
                });
            }
            var narrowed = Object.keys(grid.api.getFilterModel()).length > 0 || Boolean(grid.search);
            return [counted(answer), !narrowed];
        },

        refresh: function () {
            if (grid && grid.ready && !grid.api.isDestroyed()) {
                grid.api.refreshInfiniteCache();
            }
            return window.dash_clientside.no_update;
        },

        search: function (text) {
            if (!grid || (text || "") === grid.search) {
                return;
            }
            var query = parameters();
            if (text) {
                query.set("search", text);
                query.set("view", grid.view === "now" ? "all" : grid.view); // a job that is over is looked for as well
            } else {
                query.delete("search");
            }
            window.stormpetrelLink.replaceQuery(query);
        },

        // What stands in the search now: its property follows only when nothing is typed any more.
        submitted: function () {
            return {text: document.getElementById("jobs-search").value, at: Date.now()};
        },

        open: function (found) {
            if (found) {
                ask(found.ref);
            }
        },

        clear: function () {
            var query = new URLSearchParams();
            ["view", "sort", "job"].forEach(function (name) {
                if (parameters().has(name)) {
                    query.set(name, parameters().get(name));
                }
            });
            window.dash_clientside.set_props("jobs-search", {value: ""});
            window.stormpetrelLink.pushQuery(query);
        },
    };

    document.addEventListener("click", function (event) {
        var link = event.target.closest("[data-view], [data-job], [data-close-job]");
        if (!link || event.ctrlKey || event.metaKey || event.shiftKey || !document.getElementById(GRID)) {
            return;
        }
        event.preventDefault();
        if (link.dataset.view) {
            var query = new URLSearchParams();
            query.set("view", link.dataset.view);
            if (parameters().get("job")) {
                query.set("job", parameters().get("job"));
            }
            window.stormpetrelLink.pushQuery(query);
        } else {
            ask(link.dataset.job || "");
        }
    });

    // All fields of the record, narrowed by what is typed.
    document.addEventListener("input", function (event) {
        if (event.target.id !== "record-filter") {
            return;
        }
        var words = event.target.value.toLowerCase();
        document.querySelectorAll("#record-fields tr").forEach(function (row) {
            row.hidden = row.textContent.toLowerCase().indexOf(words) < 0;
        });
    });
})();
