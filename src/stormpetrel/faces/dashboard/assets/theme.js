// Light or dark, decided before anything is painted: what was chosen here before, else what the system says.
(function () {
    "use strict";
    var KEY = "stormpetrel-theme";
    var dark = window.matchMedia("(prefers-color-scheme: dark)");

    function chosen() {
        try {
            return window.localStorage.getItem(KEY);
        } catch (blocked) {
            return null;
        }
    }

    function apply() {
        var theme = chosen() || (dark.matches ? "dark" : "light");
        document.documentElement.dataset.theme = theme;
        document.documentElement.dataset.agThemeMode = theme;
        return theme;
    }

    dark.addEventListener("change", apply);
    window.stormpetrelTheme = {
        apply: apply,
        toggle: function () {
            var next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
            try {
                window.localStorage.setItem(KEY, next);
            } catch (blocked) {
                document.documentElement.dataset.theme = next;
                return next;
            }
            return apply();
        },
    };
    apply();
})();
