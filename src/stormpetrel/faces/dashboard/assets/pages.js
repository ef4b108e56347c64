// What the pages besides the table of jobs do in the browser: links that stay inside, choices, a dialog, cells that are links.
(function () {
    "use strict";
    var cells = (window.dashAgGridComponentFunctions = window.dashAgGridComponentFunctions || {});

    var IDLE_MS = 120000;
    var touched = Date.now();

    ["pointerdown", "keydown", "wheel", "touchstart"].forEach(function (kind) {
        document.addEventListener(kind, function () { touched = Date.now(); }, {capture: true, passive: true});
    });

    // The page is laid out anew: whoever came by keyboard goes on from the same control.
    function keepFocus() {
        var id = document.activeElement && document.activeElement.id;
        var old = id && document.getElementById(id);
        var until = Date.now() + 5000;
        (function look() {
            var now = old && document.getElementById(id);
            if (now && now !== old && document.activeElement === document.body) {
                now.focus({preventScroll: true});
            } else if (old && Date.now() < until) {
                window.requestAnimationFrame(look);
            }
        })();
    }

    function goTo(address) {
        keepFocus();
        var parts = new URL(address, window.location.href);
        window.dash_clientside.set_props("shell-link", {pathname: parts.pathname, search: parts.search});
    }

    // A link to another view of the dashboard: no page load.
    document.addEventListener("click", function (event) {
        var link = event.target.closest("a[data-inside]");
        if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) {
            return;
        }
        event.preventDefault();
        goTo(link.href);
    });

    // Cells of tables that the browser sorts by itself. React escapes what it is given as a child: a name is shown as text.
    // The address stands in the same row, in the column of the same name with `_link`.
    cells.LinkedText = function (props) {
        var address = props.data && props.colDef && props.data[props.colDef.field + "_link"];
        if (!address) {
            return props.value === undefined ? null : props.value;
        }
        return window.React.createElement("a", {className: "cell-link", href: address, "data-inside": "true"}, props.value);
    };

    // The parameters of the link with the value of the one field that changed; null where they are the same. Its id is page-parameter.
    function withValue(value) {
        var id = window.dash_clientside.callback_context.inputs_list[0].id;
        var name = id.slice(id.indexOf("-") + 1);
        var parameters = new URLSearchParams(window.location.search);
        var text = value === null || value === undefined ? "" : String(value);
        if ((parameters.get(name) || "") === text) {
            return null;
        }
        if (text) {
            parameters.set(name, text);
        } else {
            parameters.delete(name);
        }
        return parameters;
    }

    window.dash_clientside = window.dash_clientside || {};
    window.dash_clientside.pages = {
        // Time to ask for newer figures; whether they may take the place of these depends on whether anybody is reading.
        tick: function (count) {
            return {count: count, idle: Date.now() - touched > IDLE_MS};
        },

        // A choice: the page is laid out anew for it, and "back" takes it back.
        choose: function (value) {
            var parameters = withValue(value);
            if (parameters) {
                keepFocus();
                window.stormpetrelLink.pushQuery(parameters);
            }
        },

        // A button asks before anything is changed: what it stands for, and the question.
        ask: function (clicks) {
            var nothing = window.dash_clientside.no_update;
            var triggered = window.dash_clientside.callback_context.triggered[0];
            if (!triggered || !triggered.value || !clicks.some(Boolean)) {
                return [nothing, nothing];
            }
            var name = JSON.parse(triggered.prop_id.slice(0, triggered.prop_id.lastIndexOf(".")))["model-ask"];
            var question = name;
            document.querySelectorAll("[data-question]").forEach(function (button) {
                if (button.id && JSON.parse(button.id)["model-ask"] === name) {
                    question = button.dataset.question;
                }
            });
            document.getElementById("model-dialog").showModal();
            return [name, question];
        },

        closeDialog: function () {
            document.getElementById("model-dialog").close();
        },

        // Where a slider stands: kept in the link, silently.
        keep: function (value) {
            var parameters = withValue(value);
            if (parameters) {
                window.stormpetrelLink.replaceQuery(parameters);
            }
        },
    };

    // In a table the arrow keys move; Enter follows the link of a cell.
    document.addEventListener("keydown", function (event) {
        var cell = event.key === "Enter" && event.target.closest && event.target.closest(".nodes-page .ag-cell, .cluster-page .ag-cell");
        var link = cell && event.target.tagName !== "A" && cell.querySelector("a");
        if (link) {
            event.preventDefault();
            link.click();
        }
    });
})();
