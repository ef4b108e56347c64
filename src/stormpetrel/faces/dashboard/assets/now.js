// The page of now: when this browser was here last. It is kept here, and nowhere else; times are the site's.
(function () {
    "use strict";
    var AWAY_MS = 30 * 60 * 1000; // who comes back sooner is still on the same visit

    function read(key) {
        try {
            return JSON.parse(window.localStorage.getItem(key)) || {};
        } catch (error) {
            return {}; // storage is switched off, or holds something else
        }
    }

    function keep(key, visit) {
        try {
            window.localStorage.setItem(key, JSON.stringify(visit));
        } catch (error) {
            return; // nothing is kept, then nothing is new
        }
    }

    window.dash_clientside = window.dash_clientside || {};
    window.dash_clientside.now = {
        // The time since when things are new: the end of the visit before this one.
        visit: function (at) {
            var now = Date.parse(at || "");
            if (isNaN(now)) {
                return window.dash_clientside.no_update;
            }
            var key = "stormpetrel-visit " + window.location.pathname;
            var visit = read(key);
            var seen = Date.parse(visit.seen || "");
            if (!isNaN(seen) && Math.abs(now - seen) > AWAY_MS) {
                visit.since = visit.seen;
            }
            visit.seen = at;
            keep(key, visit);
            return visit.since || null;
        },
    };
})();
