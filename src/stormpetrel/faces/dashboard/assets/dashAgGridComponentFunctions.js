// Cells of the table of jobs. React escapes what it is given as a child: whatever a user called a job is shown as text.
(function () {
    "use strict";
    var cells = (window.dashAgGridComponentFunctions = window.dashAgGridComponentFunctions || {});
    var SYMBOLS = {
        RUNNING: "▶", PENDING: "◷", HELD: "◷", SUSPENDED: "⏸", COMPLETED: "✓", CANCELLED: "–",
        FAILED: "✕", TIMEOUT: "✕", OUT_OF_MEMORY: "✕", NODE_FAIL: "✕", BOOT_FAIL: "✕", DEADLINE: "✕",
    };

    function make() {
        return window.React.createElement.apply(null, arguments);
    }

    function symbol(text) {
        return make("span", {className: "symbol", "aria-hidden": "true"}, text);
    }

    cells.JobState = function (props) {
        if (!props.data) {
            return null;
        }
        if (props.data.never_runs) {
            return make("span", {className: "chip chip-fail"}, symbol("✕"), "Cannot run");
        }
        var mark = props.data.never_started ? "–" : SYMBOLS[props.data.state] || "·";
        var tone = mark === "✕" ? "bad" : mark === "✓" ? "good" : "open";
        return make("span", {className: "state state-" + tone}, symbol(mark), props.data.state_text);
    };

    cells.JobWaiting = function (props) {
        if (!props.value || !props.data) {
            return null;
        }
        var words = props.value.replace(/^(Waits for |Waits: |Cannot run as it stands: )/, "");
        return make("span", {className: props.data.never_runs ? "" : "soft"}, words);
    };

    cells.JobPrediction = function (props) {
        if (!props.value) {
            return props.data ? make("span", {className: "soft"}, "not judged") : null;
        }
        var fails = props.value === "Fail";
        return make(
            "span", {className: fails ? "chip chip-fail" : "soft"}, fails ? symbol("▲") : null, props.data.flag_text
        );
    };

    cells.JobRisk = function (props) {
        if (props.value === null || props.value === undefined) {
            return null;
        }
        var share = Math.max(0, Math.min(100, 100 * Number(props.value)));
        var tone = props.data && props.data.prediction === "Fail" ? "bar-fail" : "bar-complete";
        return make(
            "span", {className: "risk"},
            make("span", {className: "risk-number"}, props.data.format_risk),
            make("span", {className: "bar", "aria-hidden": "true"}, make("span", {className: tone, style: {width: share + "%"}}))
        );
    };

    cells.JobOutcome = function (props) {
        if (!props.value) {
            return null;
        }
        return make("span", {className: props.data.prediction === "Fail" ? "" : "soft"}, props.value);
    };
})();
