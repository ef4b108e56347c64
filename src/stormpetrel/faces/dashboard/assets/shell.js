// The shell: which page a link names, what of a page is kept in its link, theme, menus, and whether the server answers.
(function () {
    "use strict";
    var SILENT_MS = 15000;
    var written = null; // the query that a page wrote itself: not a reason to lay it out again
    var first = true;
    var lastAnswer = Date.now();

    function asQuery(parameters) {
        // Readable links: what a query may hold is not escaped.
        var query = parameters.toString().replace(/%2C/g, ",").replace(/%3A/g, ":").replace(/\+/g, "%20");
        return query ? "?" + query : "";
    }

    // Dash's Location reads the address anew, as after a click on one of its links.
    function tellDash() {
        window.dispatchEvent(new CustomEvent("_dashprivate_pushstate"));
    }

    // A new query in place of this one, silently: no entry in the history, nothing is laid out again.
    function replaceQuery(parameters) {
        var query = asQuery(parameters);
        if (query !== window.location.search) {
            written = query;
            window.history.replaceState(window.history.state, "", window.location.pathname + query);
            tellDash();
        }
    }

    // Another address as a step of its own: "back" leads to the one before.
    function go(address) {
        if (new URL(address, window.location.href).href !== window.location.href) {
            window.history.pushState({}, "", address);
            tellDash();
        }
    }

    function pushQuery(parameters) {
        go(window.location.pathname + asQuery(parameters));
    }

    function highlight(pages, page) {
        document.querySelectorAll(".nav-link").forEach(function (link) {
            var known = pages[new URL(link.href).pathname];
            if (known && known.page === page) {
                link.setAttribute("aria-current", "page");
            } else {
                link.removeAttribute("aria-current");
            }
        });
    }

    // For pages that draw a part of theirs anew: whoever came by keyboard goes on from the same control.
    function keepFocus() {
        var old = document.activeElement;
        var until = Date.now() + 5000;
        (function look() {
            var now = old && old.id && document.getElementById(old.id);
            if (now && now !== old && document.activeElement === document.body) {
                now.focus({preventScroll: true});
            } else if (old && old.id && Date.now() < until) {
                window.requestAnimationFrame(look);
            }
        })();
    }

    // A path of an older version (in a saved view, say) leads to the page's path of today, with its parameters.
    function redirect(path, search) {
        window.history.replaceState({}, "", path + (search || ""));
        window.setTimeout(tellDash, 0);
        return window.dash_clientside.no_update;
    }

    window.stormpetrelLink = {replaceQuery: replaceQuery, pushQuery: pushQuery, go: go, keepFocus: keepFocus};
    window.dash_clientside = window.dash_clientside || {};
    window.dash_clientside.shell = {
        route: function (pathname, search, current, pages) {
            var path = pathname.length > 1 ? pathname.replace(/\/+$/, "") : pathname;
            var known = pages[path] || pages[pathname] || {title: "Not found", page: null};
            if (known.moved) {
                return redirect(known.moved, search);
            }
            if (known.page === "/" && search) { // the table of jobs was on the first page
                return redirect(Object.keys(pages).find(function (path) { return pages[path].page === "/jobs"; }), search);
            }
            var same = current && current.page === known.page;
            document.title = known.title + " · Stormpetrel";
            highlight(pages, known.page);
            if (same && (known.follows || (search || "") === written)) {
                return window.dash_clientside.no_update;
            }
            written = null;
            document.getElementById("shell-header").dataset.open = "false";
            if (!first && !same) {
                document.getElementById("main").focus({preventScroll: true});
            }
            first = false;
            return {page: known.page, query: search || "", at: Date.now()};
        },
    };

    // Copy a text, and show that on the button for a moment.
    function copy(text, button, label) {
        var before = label.textContent;
        var show = function (message) {
            label.textContent = message;
            window.setTimeout(function () { label.textContent = before; }, 1800);
        };
        if (before === "Copied" || !navigator.clipboard) {
            return; // a page that is not on https or loopback may not write to the clipboard
        }
        navigator.clipboard.writeText(text).then(function () { show("Copied"); }, function () { show("Not allowed"); });
    }

    document.addEventListener("click", function (event) {
        var button = event.target.closest("[data-action]");
        var action = button && button.dataset.action;
        if (action === "toggle-theme") {
            window.stormpetrelTheme.toggle();
        } else if (action === "copy-link") {
            copy(window.location.href, button, button.querySelector(".tool-words"));
        } else if (action === "toggle-menu") {
            var header = document.getElementById("shell-header");
            var open = header.dataset.open !== "true";
            header.dataset.open = String(open);
            button.setAttribute("aria-expanded", String(open));
        }
        var line = event.target.closest("[data-copy]");
        if (line) {
            copy(line.dataset.copy, line, line);
        }
        document.querySelectorAll("details.menu[open]").forEach(function (menu) {
            if (!menu.contains(event.target) || event.target.closest("a")) {
                menu.open = false;
            }
        });
    });

    document.addEventListener("keydown", function (event) {
        if (event.key !== "Escape") {
            return;
        }
        document.querySelectorAll("details.menu[open]").forEach(function (menu) {
            menu.open = false;
            menu.querySelector("summary").focus();
        });
    });

    // A hidden page does not poll the server.
    document.addEventListener("visibilitychange", function () {
        lastAnswer = Date.now();
        window.dash_clientside.set_props("shell-beat", {disabled: document.hidden});
    });

    var askServer = window.fetch;
    window.fetch = function () {
        return askServer.apply(this, arguments).then(function (answer) {
            lastAnswer = Date.now();
            return answer;
        });
    };
    window.setInterval(function () {
        var silent = !document.hidden && Date.now() - lastAnswer > SILENT_MS;
        document.documentElement.dataset.offline = String(silent);
    }, 2000);
})();
