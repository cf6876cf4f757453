/* The script of times: it shows them in the reader's time zone, with UTC beside them. Without it they are in UTC. */
"use strict";
document.querySelectorAll("time").forEach(time => {
  const instant = new Date(time.dateTime);
  if (isNaN(instant) || !instant.getTimezoneOffset()) return;
  const part = zone => {
    const some = { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZone: zone, timeZoneName: "short" };
    const found = Object.fromEntries(new Intl.DateTimeFormat("en-GB", some).formatToParts(instant).map(each => [each.type, each.value]));
    return [found.year + "-" + found.month + "-" + found.day, found.hour + ":" + found.minute, found.timeZoneName];
  };
  const [day, clock, zone] = part(), [utcDay, utcClock] = part("UTC");
  time.textContent = day + " " + clock + " " + zone + " (" + (day === utcDay ? "" : utcDay + " ") + utcClock + " UTC)";
});
