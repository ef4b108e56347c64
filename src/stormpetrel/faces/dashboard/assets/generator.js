// The form of the page Generator: the request goes to the API, and the file that comes back is saved.
(function () {
    "use strict";
    var NUMBERS = ["users", "gpu_jobs", "later_years", "seed", "cores"];

    function field(name) {
        var input = document.getElementById("generator-" + name);
        return input ? input.value.trim() : "";
    }

    // A number as people write it; text that is none goes along as it is, and the server says what is wrong with it.
    function number(text) {
        var value = Number(text.replace(/,/g, ""));
        return isNaN(value) ? text : value;
    }

    function request() {
        var body = {format: field("format"), waits: field("waits") === "yes"};
        body[field("unit")] = number(field("amount"));
        NUMBERS.forEach(function (name) {
            if (field(name)) {
                body[name] = number(field(name));
            }
        });
        if (field("group")) {
            body.group = field("group");
        }
        if (field("start")) {
            body.start = /^\d{4}-\d\d-\d\d$/.test(field("start")) ? field("start") + "T00:00:00Z" : field("start");
        }
        return body;
    }

    function save(blob, name) {
        var link = document.createElement("a");
        link.href = URL.createObjectURL(blob);
        link.download = name;
        link.click();
        window.setTimeout(function () { URL.revokeObjectURL(link.href); }, 60000);
    }

    function nameOf(answer) {
        var match = /filename="?([\w.-]+)"?/.exec(answer.headers.get("Content-Disposition") || "");
        return match ? match[1] : "workload";
    }

    function size(bytes) {
        return bytes < 1e6 ? Math.ceil(bytes / 1e3) + " kB" : (bytes / 1e6).toFixed(1) + " MB";
    }

    // What went wrong, in the server's own words: {"error": {"what": …, "hint": …}}.
    function refused(answer) {
        return answer.json().then(
            function (answer) { throw new Error((answer.error.what + " " + answer.error.hint).trim()); },
            function () { throw new Error("The server did not say what went wrong (status " + answer.status + ")."); }
        );
    }

    function make(button) {
        var message = document.getElementById("generator-message");
        var show = function (text, kind) {
            message.textContent = text;
            message.dataset.kind = kind;
        };
        button.disabled = true;
        show("Making jobs …", "");
        window
            .fetch(button.dataset.address, {
                method: "POST",
                headers: {"Content-Type": "application/json"},
                body: JSON.stringify(request()),
            })
            .then(function (answer) {
                return answer.ok
                    ? answer.blob().then(function (blob) {
                        save(blob, nameOf(answer));
                        var jobs = Number(answer.headers.get("X-Stormpetrel-Jobs")).toLocaleString("en");
                        show(jobs + " jobs in " + nameOf(answer) + ", " + size(blob.size) + ".", "");
                    })
                    : refused(answer);
            })
            .catch(function (error) { show(error.message, "error"); })
            .then(function () { button.disabled = false; });
    }

    document.addEventListener("click", function (event) {
        var button = event.target.closest("#generator-make");
        if (button && !button.disabled) {
            make(button);
        }
    });
})();
